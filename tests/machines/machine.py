"""What this machine has: Python interpreters, rights, tools."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINORS = (11, 12, 13, 14)
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Of everybody in the variants; the caller's own may lead into folders that only the caller may
enter."""
USERS = "rl-machines-"
"""Beginning of the names of users that are made here; the rest is the pid of who made them."""
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
ASK = "import json, sys, ensurepip, venv; print(json.dumps([sys.executable, sys.base_prefix, list(sys.version_info[:3])]))"


@dataclass(frozen=True)
class Interpreter:
    """A Python that is not part of an environment."""

    program: Path
    prefix: Path
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Its version in words, as `Python 3.13.0`."""
        return f"Python {'.'.join(map(str, self.version))}"

    @property
    def environment(self) -> Path:
        """Where its packages are: the project's own `.venv` if that has this version, else a folder
        beside it."""
        own = ROOT / ".venv"
        minor = f"{self.version[0]}.{self.version[1]}"
        return own if (own / "bin" / f"python{minor}").exists() else ROOT / f".venv-{minor}"

    @property
    def packages(self) -> Path:
        """The folder that is to be imported from."""
        return (
            self.environment
            / "lib"
            / f"python{self.version[0]}.{self.version[1]}"
            / "site-packages"
        ).resolve()


@functools.cache
def interpreters() -> dict[int, Interpreter]:
    """Minor version -> the first such Python that runs, on PATH, of Debian or of pyenv; a shim that
    does not run is none."""
    found = {}
    for minor in MINORS:
        for program in candidates(minor):
            with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
                answer = subprocess.run(
                    [program, "-I", "-c", ASK], capture_output=True, check=True, timeout=30
                ).stdout
                executable, prefix, version = json.loads(answer)
                if version[1] == minor:
                    found[minor] = Interpreter(
                        Path(executable).resolve(), Path(prefix).resolve(), tuple(version)
                    )
                    break
    return found


def candidates(minor: int) -> Iterator[Path]:
    """Where a Python may be; first the one that runs this, as PATH may have another of the same
    minor version."""
    yield Path(sys.base_prefix) / f"bin/python3.{minor}"
    for folder in os.environ.get("PATH", PATH).split(os.pathsep):
        yield Path(folder) / f"python3.{minor}"
    pyenv = os.environ.get("PYENV_ROOT") or f"{os.environ.get('HOME', '')}/.pyenv"
    found = glob.glob(f"{glob.escape(pyenv)}/versions/3.{minor}.*/bin/python3.{minor}")  # noqa: PTH207 - that of pathlib raises
    yield from map(
        Path, sorted(found, reverse=True)
    )  # where it may not look; this one finds nothing there


def is_root() -> bool:
    """Whether users can be made and conditions set that only root may set."""
    return os.geteuid() == 0


@functools.cache
def has_mount_namespaces() -> bool:
    """Whether mounts can be made that nobody else sees; containers often forbid it."""
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=64m none /dev/shm"]
    return (
        is_root()
        and shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True).returncode == 0
    )


@contextlib.contextmanager
def ordinary_user(home: Path) -> Iterator[int | None]:
    """The uid of a user made for this, with that home; None where no user can be made. Removed at
    the end with all it still runs."""
    if not is_root() or not shutil.which("useradd"):
        yield None
        return
    for left in pwd.getpwall():  # by calls that were killed
        if (
            left.pw_name.startswith(USERS)
            and not Path("/proc", left.pw_name.removeprefix(USERS)).exists()
        ):
            remove_user(left)
    name = f"{USERS}{os.getpid()}"
    subprocess.run(
        ["useradd", "--create-home", "--home-dir", home, "--shell", "/bin/sh", name],
        check=True,
        capture_output=True,
    )
    user = pwd.getpwnam(name)
    try:
        yield user.pw_uid
    finally:
        remove_user(user)


def remove_user(user: pwd.struct_passwd) -> None:
    """With every process and file of theirs; only for users that were made here."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and process.stat().st_uid == user.pw_uid:
                os.kill(int(process.name), signal.SIGKILL)
    subprocess.run(
        ["userdel", "--force", "--remove", user.pw_name], check=False, capture_output=True
    )


@contextlib.contextmanager
def overcommit(value: str | None) -> Iterator[None]:
    """Set vm.overcommit_memory for the whole machine, and set it back; nothing is written for
    None."""
    before = OVERCOMMIT.read_text()
    if value is None or value == before.strip():
        yield
        return
    OVERCOMMIT.write_text(value)
    try:
        yield
    finally:
        OVERCOMMIT.write_text(before)


def default() -> Interpreter:
    """The one of the environment that runs this."""
    return interpreters()[sys.version_info[1]]
