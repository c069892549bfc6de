"""What a machine may be like: each condition changes a setup, or says why this machine cannot have
it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.machines import installation, machine
from tests.machines.machine import PATH, Interpreter

SOURCE = Path(__file__).parent
NOBODY = 12345
CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass
class Setup:
    """One clone and how its command is started; `folder` holds everything of this variant and
    belongs to `uid`."""

    folder: Path
    uid: int | None
    python: Interpreter
    environment: dict[str, str]
    clone_name: str = "rl-training-dag"
    with_git: bool = True
    blocked: tuple[str, ...] = ()  # modules that cannot be imported
    thin_venv: bool = True  # or the command installs everything
    preload: Path | None = None  # a shared library in every process of the clone's Python
    umask: int = 0o022
    cores: int | None = None
    limits: dict[str, int] = field(default_factory=dict)  # RLIMIT_<name> -> value
    mounts: list[tuple[str, str, str]] = field(
        default_factory=list
    )  # type, target, options; seen by this variant only
    terminal: bool = False
    closed: tuple[int, ...] = ()

    @property
    def clone(self) -> Path:
        """Where the command is started."""
        return self.folder / self.clone_name

    @property
    def program(self) -> str:
        """The clone's Python."""
        return str(self.clone / ".venv/bin/python")


@dataclass(frozen=True)
class Condition:
    """`name` and `how` stand in the table; `missing` is why this machine cannot have it, or
    None."""

    name: str
    how: str
    change: Callable[[Setup], None]
    missing: Callable[[], str | None] = lambda: None


def needs_root() -> str | None:
    return None if machine.is_root() else "needs root"


def needs_mounts() -> str | None:
    return None if machine.has_mount_namespaces() else "needs root and mount namespaces"


def needs_compiler() -> str | None:
    return None if shutil.which("cc") else "no C compiler"


def python(minor: int) -> Condition:
    """Another interpreter; its environment is made by `make`."""

    def change(setup: Setup) -> None:
        setup.python = machine.interpreters()[minor]
        installation.install(setup.python)

    def missing() -> str | None:
        return None if minor in machine.interpreters() else "no such interpreter here"

    return Condition(f"Python 3.{minor}", "make PYTHON=… VENV=…", change, missing)


def variables(name: str, **values: str | None) -> Condition:
    """Environment variables; None takes one away."""

    def change(setup: Setup) -> None:
        for variable, value in values.items():
            if value is None:
                setup.environment.pop(variable, None)
            else:
                setup.environment[variable] = value

    how = " ".join(
        f"{variable}={value}" if value is not None else f"no {variable}"
        for variable, value in values.items()
    )
    return Condition(name, how, change)


def change_umask(setup: Setup) -> None:
    setup.umask = 0o077


def change_overcommit(setup: Setup) -> None:
    """Nothing: the whole machine has it, or the condition is missing."""


def overcommit(value: str) -> Condition:
    """vm.overcommit_memory is the machine's; it is only written when somebody asks, and then around
    all variants."""

    def missing() -> str | None:
        now = machine.OVERCOMMIT.read_text().strip()
        return (
            None
            if now == value
            else f"it is {now} here; OVERCOMMIT={value} sets it for the whole machine meanwhile"
        )

    return Condition(
        f"overcommit {value}", f"vm.overcommit_memory={value}", change_overcommit, missing
    )


def change_to_read_only_home(setup: Setup) -> None:
    home = setup.folder / "read-only"
    home.mkdir()
    home.chmod(0o555)
    setup.environment["HOME"] = str(home)


def change_to_nobody(setup: Setup) -> None:
    setup.uid = NOBODY
    for name in ("HOME", "USER", "LOGNAME"):
        setup.environment.pop(name, None)


def change_to_terminal(setup: Setup) -> None:
    setup.terminal = True
    setup.environment["TERM"] = "dumb"


def change_to_closed(setup: Setup) -> None:
    setup.closed = (0, 1)


def change_path(setup: Setup) -> None:
    setup.clone_name = "Größe und  Übung"


def change_cores(setup: Setup) -> None:
    setup.cores = 1


def change_address_space(setup: Setup) -> None:
    setup.limits["AS"] = 8 << 30


def change_shared_memory(setup: Setup) -> None:
    setup.mounts.append(("tmpfs", "/dev/shm", "size=64m,mode=1777"))  # noqa: S108 - it is what is laid over


def change_files(setup: Setup) -> None:
    setup.limits["NOFILE"] = 64


def change_git(setup: Setup) -> None:
    """A PATH on which everything is but git, and a clone without its history."""
    programs = setup.folder / "programs"
    programs.mkdir()
    for folder in PATH.split(os.pathsep):
        for program in Path(folder).iterdir():
            if program.name != "git" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    setup.environment["PATH"] = str(programs)
    setup.with_git = False


@functools.cache
def clock_library(folder: Path) -> Path:
    library = folder / "jumping_clock.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE / "jumping_clock.c", "-ldl"],
        check=True,
    )
    library.chmod(0o755)
    return library


def change_clock(setup: Setup) -> None:
    setup.preload = clock_library(setup.folder.parent)


def change_box2d(setup: Setup) -> None:
    setup.blocked = ("Box2D",)


def change_to_installation(setup: Setup) -> None:
    """Pip finds its index and certificates as it does for the caller."""
    setup.thin_venv = False
    setup.environment |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_")) or name in CERTIFICATES
    }


UMASK = Condition("umask 077", "umask 077, also of the clone", change_umask)
LANG_C = variables("LANG=C", LANG="C", LC_ALL="C")
NO_LOCALE = variables("no locale", LANG=None)
ASCII = variables(
    "an ASCII locale", LANG=None, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
)
NO_HOME = variables("no HOME", HOME=None)
READ_ONLY_HOME = Condition("read-only HOME", "HOME with mode 0555", change_to_read_only_home)
NO_PASSWD_ENTRY = Condition(
    "no passwd entry", f"uid {NOBODY}, no HOME, no USER", change_to_nobody, needs_root
)
NO_TERMINAL = variables("no terminal", TERM=None)
DUMB = Condition("TERM=dumb", "a terminal of its own, TERM=dumb", change_to_terminal)
CLOSED = Condition("closed stdin, stdout", "<&- >&-", change_to_closed)
BLANKS = Condition("blanks and umlauts", "the clone's path", change_path)
ONE_CORE = Condition("1 core", "sched_setaffinity", change_cores)
ADDRESS_SPACE = Condition("address space", "RLIMIT_AS 8 GiB", change_address_space)
SHARED_MEMORY = Condition(
    "64 MiB of /dev/shm", "tmpfs in a mount namespace", change_shared_memory, needs_mounts
)
FILES = Condition("RLIMIT_NOFILE 64", "setrlimit", change_files)
NO_GIT = Condition("no git", "a PATH without it, no .git", change_git)
CLOCK = Condition(
    "a clock that jumps", "0, +1, 0, -1 h every 3 s, LD_PRELOAD", change_clock, needs_compiler
)
NO_BOX2D = Condition("no Box2D", "its import blocked, as where it has no wheel", change_box2d)


def only_full() -> str | None:
    return None if os.environ.get("FULL") else "FULL=1 does it"


FULL = Condition("at length", "when asked for", lambda setup: None, only_full)
INSTALLATION = Condition(
    "make run", "fresh clone, also installed by its user", change_to_installation, only_full
)
