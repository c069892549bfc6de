"""The table of readers, and the one that reads a source."""

from __future__ import annotations

from config.errors import BadInput, on_one_line, shown, unknown
from steps.comparison.entries import Entry
from steps.comparison.readers import (
    event_files,
    experiments,
    exported_tables,
    stable_baselines3,
)
from steps.comparison.readers.run_names import EXPERIMENT
from steps.comparison.readers.source import Reader, Source, parse

READERS: tuple[Reader, ...] = (
    experiments.READER,
    stable_baselines3.READER,
    event_files.READER,
    exported_tables.READER,
)
"""The first one that recognises a path and takes its options reads it."""


def read(text: str) -> list[Entry]:
    """The entries of a source, `PATH` or `PATH:label=PPO:game=hopper` (`source.OPTIONS`), of one path
    at least one. Raises `BadInput` in one line.
    """
    source = parse(text)
    try:
        reader = _reader(source)
        return reader.read(source)
    except BadInput as error:
        # Names of files and columns stand in messages, and may contain line breaks.
        raise BadInput(on_one_line(error)) from error
    except OSError as error:
        place = error.filename or source.path
        raise BadInput(f"cannot read {place}: {error.strerror or on_one_line(error)}") from error


def _reader(source: Source) -> Reader:
    recognising = [reader for reader in READERS if reader.recognises(source.path)]
    if not recognising:
        raise _unrecognised(source)
    given = source.options.keys()
    for reader in recognising:
        if given <= set(reader.options):
            return reader
    first = recognising[0]
    wrong = next(name for name in given if name not in first.options)
    raise unknown(f"option of {first.title} ({source.path}):", wrong, first.options)


def _unrecognised(source: Source) -> BadInput:
    path = source.path
    what = "is nothing that is recognised"
    if path.is_dir() and not any(path.iterdir()):
        what = "is an empty directory"
    elif not path.is_dir() and not path.is_file():
        what = "is neither a file nor a directory"
    elif any(path.glob(f"*/{EXPERIMENT}")):
        what = f"is no study, but has experiments: name them, {path}/*"
    known = "; ".join(f"{reader.title}: {reader.form}" for reader in READERS)
    return BadInput(f"{shown(str(path))} {what}. Recognised are {known}")
