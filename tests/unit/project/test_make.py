"""`containers/tag` in real git repositories, what `make images` does with it, and `make
test-cluster` with the exit codes of its parts."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from steps.prepare import source

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("GIT_", "MAKE", "ARGO_")) and name not in ("TAG", "REGISTRY")
}


def shell(
    folder: Path, *command: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    ended = shell(folder, "git", *person, *arguments, GIT_CONFIG_GLOBAL=os.devnull)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def tag(folder: Path) -> str:
    """Called from another folder, as nothing says that it is called from its own."""
    ended = shell(folder.parent, folder / "containers/tag")
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.removesuffix("\n")


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The files outside of git."""
    folder = tmp_path / "project"
    (folder / "containers").mkdir(parents=True)
    for name in ("Makefile", "containers/tag"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "code.py").write_text("1")
    (folder / ".gitignore").write_text("/results/\n")
    return folder


@pytest.fixture
def committed(unpacked: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git here")
    git(unpacked, "init", "--quiet")
    git(unpacked, "add", "--all")
    git(unpacked, "commit", "--quiet", "--message", "first")
    return unpacked


def test_a_clean_tree_is_its_commit(committed: Path) -> None:
    commit = git(committed, "rev-parse", "--short=10", "HEAD")
    (committed / "results").mkdir()
    (committed / "results/ignored").write_text("")
    assert tag(committed) == commit
    (committed / "code.py").write_text("2")
    git(committed, "worktree", "add", "--quiet", "../other")
    assert tag(committed.parent / "other") == commit, "a worktree has its own state"


def test_every_state_has_its_own_tag(committed: Path) -> None:
    clean, code, new = tag(committed), committed / "code.py", committed / "new.py"
    seen = [clean]
    for change in (
        lambda: code.write_text("2"),
        lambda: code.write_text("3"),
        lambda: new.write_text("1"),
        lambda: new.write_text("2"),
        lambda: code.unlink(),
    ):
        change()
        seen.append(tag(committed))
    assert len(set(seen)) == len(seen) and all(
        one.startswith(f"{clean}-") and len(one) == 21 for one in seen[1:]
    )
    git(committed, "checkout", "--quiet", "code.py")
    new.unlink()
    assert tag(committed) == clean


def test_what_is_staged_stays_staged_and_nothing_else(committed: Path) -> None:
    (committed / "code.py").write_text("2")
    git(committed, "add", "code.py")
    (committed / "code.py").write_text("3")
    (committed / "new.py").write_text("1")
    before = (committed / ".git/index").read_bytes()
    unstaged = tag(committed)
    assert (committed / ".git/index").read_bytes() == before
    git(committed, "add", "--all")
    assert tag(committed) == unstaged, "the work tree counts, not the index"


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
@pytest.mark.parametrize("around", [False, True])
def test_outside_of_git(unpacked: Path, around: bool) -> None:
    if around:
        git(unpacked.parent, "init", "--quiet")
        git(
            unpacked.parent, "commit", "--quiet", "--allow-empty", "--message", "of another project"
        )
    ended = shell(unpacked, "containers/tag")
    assert ended.returncode != 0 and ended.stdout == ""
    assert "not a git repository" in ended.stderr and ended.stderr.count("\n") == 1


def images(folder: Path, *arguments: str) -> tuple[int, set[str], set[str], str]:
    """Exit code, names, recorded sources, errors."""
    ended = shell(folder, "make", "images", "BUILDER=echo", *arguments)
    words = ended.stdout.split()
    names = {name for option, name in itertools.pairwise(words) if option == "--tag"}
    return (
        ended.returncode,
        names,
        {word.removeprefix("SOURCE=") for word in words if word.startswith("SOURCE=")},
        ended.stderr,
    )


def test_images_are_named_after_the_source_or_by_the_person(committed: Path) -> None:
    (committed / "code.py").write_text("2")
    built = tag(committed)
    assert images(committed) == (0, {f"rl:{built}-gpu", f"rl:{built}-cpu"}, {built}, "")
    assert images(committed, "TAG=v1", "REGISTRY=r") == (
        0,
        {"r/rl:v1-gpu", "r/rl:v1-cpu"},
        {built},
        "",
    )


def test_what_to_submit_with(committed: Path) -> None:
    told = [
        shell(committed, "make", "images", "BUILDER=echo", "TAG=v1", *more).stdout.splitlines()[-1]
        for more in ((), ("TARGETS=cpu",))
    ]
    assert told == [
        "submit with: -p gpu_image=rl:v1-gpu -p cpu_image=rl:v1-cpu",
        "submit with: -p cpu_image=rl:v1-cpu",
    ]


def installing(folder: Path, target: str, *variables: str) -> list[str]:
    """What `make` would let pip install for a target, one line a call."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    told = shell(folder, "make", "--dry-run", target, *variables).stdout.splitlines()
    return [line.partition("constraints.txt ")[2] for line in told if "pip install" in line]


def test_running_installs_only_what_running_needs(unpacked: Path) -> None:
    assert installing(unpacked, "run") == ["--editable ."]
    assert installing(unpacked, "test") == ["--editable .", "--editable '.[test]'"]
    assert installing(unpacked, "docs") == ["--editable .", "--editable '.[docs]'"]


def test_torch_alone_comes_from_another_index(unpacked: Path, committed: Path) -> None:
    index = "TORCH_INDEX=https://torch.example.org/cpu"
    assert installing(unpacked, "run", index) == [
        "--index-url https://torch.example.org/cpu torch",
        "--editable .",
    ]
    told = shell(committed, "make", "images", "BUILDER=echo", "TAG=v1", index).stdout.splitlines()
    gpu, cpu = (line.split() for line in told if line.startswith("build "))
    assert index not in gpu
    assert cpu[cpu.index(index) - 1] == "--build-arg"


def test_images_without_a_name(unpacked: Path) -> None:
    code, names, _, error = images(unpacked)
    assert (code, names) == (2, set()) and error.splitlines()[0].endswith(
        "images then need a name: make images TAG=…"
    )
    assert images(unpacked, "TAG=v1")[:3] == (0, {"rl:v1-gpu", "rl:v1-cpu"}, {""})


def test_the_recorded_source(committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = tag(committed)
    monkeypatch.setenv("EXPERIMENT_SOURCE", clean)
    assert source() == {"commit": clean, "changed": False}
    (committed / "code.py").write_text("2")
    monkeypatch.setenv("EXPERIMENT_SOURCE", tag(committed))
    assert source() == {"commit": clean, "changed": True}


@pytest.mark.parametrize(
    ("up", "runs_before", "tests", "called", "code"),
    [
        (0, False, 0, ["up", "env", "pytest on the cluster", "down"], 0),
        (0, False, 1, ["up", "env", "pytest on the cluster", "down"], 1),
        (0, True, 1, ["up", "env", "pytest on the cluster"], 1),
        (2, False, 0, ["up", "pytest"], 0),
        (3, False, 1, ["up", "pytest"], 1),
        (None, False, 0, ["pytest"], 0),
        (1, False, 0, ["up"], 1),
        (100, True, 0, ["up"], 100),
    ],
)
def test_the_tests_on_a_cluster(
    unpacked: Path, up: int | None, runs_before: bool, tests: int, called: list[str], code: int
) -> None:
    scripts = {
        "cluster/up": f"echo up >> calls; echo 'why up failed' >&2; exit {up}",
        "cluster/env": "echo env >> calls; echo export ARGO_SERVER=there",
        "cluster/down": "echo down >> calls",
        "cluster/settings": f"alive() {{ [ $1 = kube-apiserver ] && {'true' if runs_before else 'false'}; }}",
        "bin/python": f"echo pytest ${{ARGO_SERVER:+on the cluster}} >> calls; exit {tests}",
    }
    for name, script in scripts.items():
        (unpacked / name).parent.mkdir(exist_ok=True)
        (unpacked / name).write_text(f"#!/bin/sh\n{script}\n")
        (unpacked / name).chmod(0o755)
    if up is None:
        (unpacked / "cluster/up").unlink()
    ended = shell(
        unpacked,
        "make",
        "test-cluster",
        "--assume-old=.venv/.installed-with-tests",
        "BIN=bin",
        "CLUSTER=./cluster",
    )
    assert [line.strip() for line in (unpacked / "calls").read_text().splitlines()] == called
    assert (ended.returncode, f"Error {code}" in ended.stderr) == (
        (2, True) if code else (0, False)
    )
    assert ("why up failed" in ended.stderr) == (up is not None)
