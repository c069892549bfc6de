"""Starts pods that run Python programs without an interpreter's start and its imports.

A program of its own. The supervisor runs it as `python fork_server.py <descriptor> <spaces>`, as a pod:
with the environment and in the folder that its pods have in common. It loads modules, and then forks
itself for each pod. The child gets the pod's session, log and environment, has the supervisor as its
parent, and runs the program as `python -m <program> <arguments>` does. The descriptor is a socket to the
supervisor, one JSON object a line:
    {"load": [[program, [module, …]], …], "apart": [variable, …]}     once
    {"fork": id, "arguments": […], "environment": {…}, "folder": path, "log": path}
and the answers `{"forked": id, "pid": n}` and `{"failed": id}`, after which the supervisor starts an
interpreter. Texts for a pod are its bytes, read as Latin-1.

Where a forked process could differ from an interpreter of its own, this process ends and serves nobody
any more: a module cannot be loaded, or has started a thread, opened a descriptor, made a temporary
folder or changed a signal's handler, or its file is not what was loaded.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import select
import signal
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import InspectLoader
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve()
SUPERVISOR = runpy.run_path(str(PROGRAM.with_name("supervisor.py")), run_name="supervisor")
as_bytes = SUPERVISOR["as_bytes"]
WORKING_DIRECTORY = str(PROGRAM / "working-directory")
"""Stands for the working directory in `sys.path` while modules are loaded. It never exists."""


class Unfit(Exception):
    """A process forked from here could differ from an interpreter of its own."""


class ForkServer:
    """Loads modules, and forks this process when the supervisor asks for it. channel: the socket."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.supervisor = os.getppid()
        self.unread = b""
        self.asked: list[dict[str, Any]] = []
        self.loaded: set[str] = set()
        self.files: dict[str, tuple[int, int]] = {}
        self.printed = b""
        self.changes: set[bytes] = set()

    def serve(self) -> dict[str, Any]:
        """Load everything and serve the supervisor. Returns only in forked children, with the message
        that asked for each. Raises `Unfit`, and whatever a module raises.
        """
        self.receive(wait=True)
        plan = self.asked.pop(0)
        self.before = descriptors(), handlers()
        for program, modules in plan["load"]:
            gc.disable()  # nearly all that modules make stays
            for module in (*modules, program):
                importlib.import_module(module)
            gc.enable()
            self.loaded.add(program)
            self.remember(plan["apart"])
            self.check()
            if pod := self.answer(wait=False):
                return pod
        while True:
            if pod := self.answer(wait=True):
                return pod

    def remember(self, apart: list[str]) -> None:
        """Note what a forked child needs to know of the modules that are loaded now."""
        gc.collect()
        # The collector leaves these objects alone: it would copy their pages in every child.
        gc.freeze()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.printed = Path("/proc/self/fd/1").read_bytes()
        initial = Path("/proc/self/environ").read_bytes().split(b"\0")
        given = dict(line.split(b"=", 1) for line in initial if b"=" in line)
        self.changes = changed(given, dict(os.environb))
        if self.changes & set(map(as_bytes, apart)):
            raise Unfit("a module has set a variable in which the pods differ")
        for path in module_files():
            if path not in self.files:
                self.files[path] = version(path)

    def answer(self, wait: bool) -> dict[str, Any] | None:
        """Fork for every request whose modules are loaded. Returns its message in a child."""
        self.receive(wait)
        for message in [one for one in self.asked if one["arguments"][2] in self.loaded]:
            self.asked.remove(message)
            self.check()
            if is_shadowed(message["folder"]):
                self.send({"failed": message["fork"]})
            elif self.fork(message):
                return message
        return None

    def check(self) -> None:
        """Raise `Unfit` unless a fork is as good as an interpreter."""
        if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - names only
            raise Unfit("a module has started a thread")
        if (descriptors(), handlers()) != self.before:
            raise Unfit("a module has opened a descriptor or changed a signal's handler")
        if tempfile.tempdir is not None:
            raise Unfit(
                "a module has asked for the temporary folder, which each pod has of its own"
            )
        if any(version(path) != loaded for path, loaded in self.files.items()):
            raise Unfit("the file of a module has changed")

    def fork(self, message: dict[str, Any]) -> bool:
        """Fork twice, so that the supervisor adopts the child, and report it before its program can
        begin. Returns whether this is the child.
        """
        told_read, told_write = os.pipe()
        go_read, go_write = os.pipe()
        try:
            between = os.fork()
        except OSError:
            for descriptor in (told_read, told_write, go_read, go_write):
                os.close(descriptor)
            self.send({"failed": message["fork"]})
            return False
        if between == 0:
            for descriptor in (self.channel, told_read, go_write):
                os.close(descriptor)
            self.begin(message, told_write, go_read)
            return True
        os.close(told_write)
        os.close(go_read)
        os.waitpid(between, 0)
        told = b""
        while received := os.read(told_read, 4096):
            told += received
        os.close(told_read)
        pid, _, error = told.partition(b"\n")
        if pid and not error and parent_of(int(pid)) == self.supervisor:
            self.send({"forked": message["fork"], "pid": int(pid)})
            with suppress(BrokenPipeError):
                os.write(go_write, b"g")
        else:
            self.send({"failed": message["fork"]})
        os.close(go_write)
        return False

    def begin(self, message: dict[str, Any], told: int, go: int) -> None:
        """In the child between, fork the pod's process and end. In that, set up what a pod has, and
        wait until the supervisor knows it.
        """
        try:
            if pid := os.fork():
                os.write(told, b"%d\n" % pid)
                os._exit(0)
            try:
                SUPERVISOR["enter"](message)
                os.write(2, self.printed)
            except BaseException as error:
                os.write(told, repr(error).encode())
                raise
            os.close(told)
            if os.read(go, 1) == b"g" and SUPERVISOR["die_with"](self.supervisor):
                os.close(go)
                self.set_environment(message["environment"])
                reseed()
                return
        except BaseException:  # noqa: S110 - this child must not go on as a server
            pass
        os._exit(64)

    def set_environment(self, variables: dict[str, str]) -> None:
        """Add what the pod has of its own. What modules have changed stays: they would change it in an
        interpreter, too.
        """
        for name, value in variables.items():
            if as_bytes(name) not in self.changes:
                os.environb[as_bytes(name)] = as_bytes(value)

    def receive(self, wait: bool) -> None:
        """Read the supervisor's messages. Ends this process when the supervisor is gone."""
        while wait or select.select([self.channel], [], [], 0)[0]:
            received = os.read(self.channel, 1 << 20)
            if not received:
                os._exit(0)
            *lines, self.unread = (self.unread + received).split(b"\n")
            self.asked += map(json.loads, lines)
            wait = wait and not lines

    def send(self, message: dict[str, Any]) -> None:
        """Write one message to the supervisor; it is short enough for the socket's buffer."""
        os.write(self.channel, json.dumps(message).encode() + b"\n")


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descriptors() -> dict[str, str]:
    """The open descriptors of this process and what they are."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
        with suppress(OSError):  # the one that lists them
            found[name] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - may be no path
    return found


def handlers() -> dict[int, Any]:
    """The handler of each signal."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def changed(before: dict[bytes, bytes], after: dict[bytes, bytes]) -> set[bytes]:
    """The names of the variables that are not as before."""
    names = before.keys() | after.keys()
    return {name for name in names if before.get(name) != after.get(name)}


def module_files() -> Iterator[str]:
    """The files of all loaded modules."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            yield path


def version(path: str) -> tuple[int, int]:
    """Changes when the file does; zeros without a file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - two thousand of them for each pod
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def is_shadowed(folder: str) -> bool:
    """Whether an interpreter would find another module in the working directory than one that is
    loaded.
    """
    if sys.flags.safe_path:
        return False
    place = os.fsdecode(as_bytes(folder))
    loaders = (
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )
    finder = importlib.machinery.FileFinder(place, *loaders)
    try:
        names = {name.partition(".")[0] for name in os.listdir(place)}  # noqa: PTH208 - names only
    except OSError:
        return True
    for name in names & sys.modules.keys():
        there = finder.find_spec(name)
        loaded = getattr(sys.modules[name], "__file__", None)
        if there is None or there.origin is None:
            continue  # a folder without __init__.py gives way to every module
        if loaded is None or not Path(loaded).exists() or not Path(loaded).samefile(there.origin):
            return True
    return False


def reseed() -> None:
    """Draw a new state for each generator that has one of this process. Python's own `random` does so
    by itself, and torch's begins with a constant.
    """
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def show_arguments(arguments: list[bytes]) -> None:
    """Let `ps` show this command line, with spaces between the arguments, as far as there is room in the
    place of the one that the process was started with. Linux takes a last byte there that is not zero
    for the sign of that.
    """
    with suppress(OSError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        title = b" ".join(arguments)[: end - begin - 2]
        ctypes.memmove(begin, title.ljust(end - begin - 1, b"\0") + b" ", end - begin)


class Ending:
    """How a pod's process ends after a `sys.exit` with a number, as every step does: without taking the
    interpreter apart, which would copy nearly every page that is shared (0.25 s with torch).

    `__del__` of what still exists is not called, as Python reserves, and the exit functions of C
    libraries are not either. Threads have been waited for and functions of `atexit` called before, and
    buffers are written here.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.leave = os._exit  # a step may have put its own in the place of this
        # The first to be registered is called last.
        atexit.register(self.end)

    def end(self) -> None:
        """End this process, or return to have the interpreter do it."""
        if self.code is None:
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return  # the interpreter says so, with an exit code of its own
        for one in gc.get_objects():
            if issubclass(type(one), io.IOBase):
                with suppress(Exception):
                    if not one.closed and one.writable():
                        one.flush()
        ctypes.CDLL(None).fflush(None)
        self.leave(self.code)


def run(pod: dict[str, Any]) -> None:
    """Run the pod's program as `python -m` does."""
    sys.orig_argv[:] = [os.fsdecode(as_bytes(text)) for text in pod["arguments"]]
    _, _, program, *arguments = sys.orig_argv
    if not sys.flags.safe_path:
        sys.path[sys.path.index(WORKING_DIRECTORY)] = os.getcwd()  # noqa: PTH109 - as Python does
    package, _, name = program.rpartition(".")
    if sys.modules.pop(program, None) is not None and package:
        vars(sys.modules[package]).pop(name, None)
    spec = importlib.util.find_spec(program)
    if spec is None or spec.origin is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(f"No module named {program}")
    sys.argv[:] = [spec.origin, *arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader, __package__=spec.parent,
        __spec__=spec, __annotations__={},
    )  # fmt: skip
    sys.modules["__main__"] = main
    code = spec.loader.get_code(program)
    if code is None:
        raise ImportError(f"No code object available for {program}")
    exec(code, main.__dict__)  # noqa: S102 - a module's own code


if __name__ == "__main__":
    ending = Ending()
    show_arguments([os.fsencode(one) for one in sys.orig_argv[:2]])
    if not sys.flags.safe_path:
        sys.path[0] = WORKING_DIRECTORY
    channel = int(sys.argv[1])
    os.set_inheritable(channel, False)
    try:
        pod = ForkServer(channel).serve()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os.close(channel)  # the supervisor need not wait until this process has ended
        sys.exit(1)  # modules remove what they have made, such as a temporary folder
    show_arguments(list(map(as_bytes, pod["arguments"])))
    try:
        run(pod)
    except SystemExit as error:
        if isinstance(error.code, int):
            ending.code = error.code & 0xFF
        raise
