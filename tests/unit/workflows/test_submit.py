"""`python -m workflows.submit`: what it refuses, and that nothing is written or sent; what it
shows; its start-up."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from config import VERSION, pipeline
from config.described import parameters
from config.experiment import Experiment
from tests.unit.workflows.loopback_argo import LoopbackArgo
from workflows import submit
from workflows.dag import manifest_yaml, render
from workflows.request.submission import check_name

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test works in a folder of its own, without an Argo Server."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ARGO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def files(folder: Path = Path()) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("a{b}", "braces"), ("a\u00a0b", "unusual spaces"), ("a\tb", "control characters")],
)
def test_c16_a_folder_whose_path_no_parameter_may_hold(
    tmp_path: Path,
    folder: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Defect C16 of docs/faults.md: `prepare` would refuse its path, in the middle of the workflow."""
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    assert submit.main(["ppo", "--local", "-p", "game=cartpole"]) == 2
    refused = capsys.readouterr().err
    assert (
        refused.startswith("refused: parameter 'outdir' cannot be ")
        and reason in refused
        and refused.count("\n") == 1
    )
    assert files() == []


REFUSED: list[tuple[Sequence[str], str]] = [
    ((), "which algorithm? known: ppo"),
    (("pppo",), "unknown algorithm 'pppo'; did you mean 'ppo'?"),
    (("ppo", "-p", "rnus=3"), "unknown parameter 'rnus'; did you mean 'runs'?"),
    (("ppo", "-p", "game=brekout"), "unknown game 'brekout'; did you mean 'breakout'?"),
    (("ppo", "-p", "runs=0"), "parameter 'runs' cannot be '0'; allowed: an integer from 1 to 256"),
    (("ppo", "-p", "runs=1e3"), "parameter 'runs' cannot be '1e3'"),
    (("ppo", "-p", "runs="), "empty value for 'runs'"),
    (("ppo", "-p", "runs"), "cannot read -p 'runs'; allowed: -p name=value"),
    (("ppo", "-p", "runs=1", "-p", "runs=2"), "parameter 'runs' was given twice"),
    (("ppo", "runs=3"), "unknown argument 'runs=3'; did you mean -p runs=3?"),
    (("ppo", "--dryrun"), "unknown argument '--dryrun'"),
    (("ppo", "-p", "game={{workflow.name}}"), "braces are not allowed"),
    (("ppo", "-p", "game={{=1+1}}"), "braces are not allowed"),
    (("ppo", "-p", "outdir=results/d$$x"), "'$(' and '$$' are not allowed"),  # defect B13 of docs/faults.md
    (("ppo", "-p", "outdir=/storage/$(EXPERIMENT_OWNER)"), "'$(' and '$$' are not allowed"),
    (("ppo", "-p", "cpu_image=$(X)"), "'$(' and '$$' are not allowed"),
    (("ppo", "-p", "game=breakout; rm -rf /"), "unknown game 'breakout; rm -rf /'"),
    (("ppo", "-p", "game=NoSuch-v1"), "game 'NoSuch-v1' cannot be made"),
    (("ppo", "-p", "game=no.such.module:Game"), "game 'no.such.module:Game' cannot be made"),
    (("ppo", "-p", "game=$(id)"), "'$(' and '$$' are not allowed"),
    (("ppo", "-p", "game=a\nb"), "control characters and unusual spaces are not allowed"),
    (("ppo", "-p", "outdir=../../etc"), "parameter 'outdir' cannot be '../../etc'"),
    (("ppo", "-p", "outdir=/storage/../etc"), "parameter 'outdir' cannot be '/storage/../etc'"),
    (("ppo", "-p", "outdir=/storage"), "parameter 'outdir' cannot be"),
    (("ppo", "-p", "outdir="), "empty value for 'outdir'"),
    (("ppo", "-p", "outdir=/etc/hostname/x"), "/etc/hostname is no directory"),
    (("ppo", "-p", "outdir=results/x", "--storage", "elsewhere"), "parameter 'outdir' cannot be 'results/x'; allowed: a directory below"),
    (("ppo", "-p", "gpus=4"), "parameter 'gpus' cannot be '4'; allowed: 0 or 1, because a training computes on one GPU"),
    (("ppo", "-p", "min_runs=2"), "parameter 'min_runs' cannot be 2; allowed: at most runs, 1"),
    (("ppo", "-p", "device=cuda", "-p", "gpus=0"), "parameter 'device' cannot be 'cuda' with gpus=0"),
    (("ppo", "--deadline", "1e3"), "cannot be '1e3'; allowed: an integer from 1"),
    (("ppo", "--deadline", "0"), "cannot be '0'; allowed: an integer from 1"),
    (("ppo", "--name", "My_Name"), "--name cannot be 'My_Name'"),
    (("ppo", "--name", "x" * 64), "--name cannot be"),
    (("ppo", "--local", "--argo"), "not allowed with argument --local"),
    (("ppo", "--list", "--dry-run"), "not allowed with argument"),
    (("ppo", "--argo"), "--argo needs an Argo Server: set ARGO_SERVER"),
    (("ppo", "--detach"), "--detach needs an Argo Server"),
    (("--follow", "ppo-1"), "--follow needs an Argo Server"),
    (("ppo", "--cluster", "missing.yaml"), "cannot read missing.yaml"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    REFUSED,
    ids=[" ".join(arguments)[:40] or "nothing" for arguments, _ in REFUSED],
)
def test_refused(arguments: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err
    assert shown.err.startswith("refused: ") and shown.err.count("\n") == 1, "one line"
    assert files() == []


@pytest.mark.parametrize(
    "text",
    [
        "claim: !!python/object:os.system x",
        "a: &x [1]\nclaim: *x",
        "claim: a\nclaim: b",
        "claims: x",
        "gpu: {limits: {memory: lots}}",
    ],
)
def test_hostile_cluster_settings(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    assert submit.main(["ppo", "--cluster", "cluster.yaml"]) == 2
    assert capsys.readouterr().err.startswith("refused: cluster.yaml")
    assert files() == ["cluster.yaml"]


def test_cuda_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.request.preflight.CUDA_PROBE", "raise SystemExit(1)")
    assert submit.main(["ppo", "-p", "device=cuda"]) == 2
    assert "parameter 'device' cannot be 'cuda' on this machine" in capsys.readouterr().err
    assert files() == []


@pytest.mark.parametrize(
    ("game", "package"),
    [("lunarlander", "Box2D"), ("hopper", "mujoco"), ("minatar-breakout", "minatar")],
)
def test_a_game_whose_package_is_missing(
    game: str,
    package: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Games with a short name are not made before the workflow begins, so `prepare` found it out."""
    monkeypatch.setitem(sys.modules, package, None)
    assert submit.main(["ppo", "-p", f"game={game}", "--dry-run"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(
        f"refused: game {game!r} cannot be made: it needs the package {package}"
    )
    assert shown.count("\n") == 1
    assert files() == []


HANGS = "import threading\nthreading.Event().wait()\n"


@pytest.mark.parametrize(
    ("module", "timeout_s", "said"),
    [
        (HANGS, 2.0, "it was not there after 2 s"),
        ("raise SystemExit('enough')", 60.0, "SystemExit: enough"),
        ("import os\nos._exit(7)", 60.0, "its process ended with 7"),
        ("import os\nos.kill(os.getpid(), 11)", 60.0, "its process ended with -11"),
    ],
)
def test_c19_a_game_whose_module_hangs_or_ends_the_process(
    module: str,
    timeout_s: float,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "odd_game.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    monkeypatch.setattr("workflows.request.preflight.PROBE_TIMEOUT_S", timeout_s)
    assert submit.main(["ppo", "-p", "game=odd_game:Game", "-p", "outdir=results/x"]) == 2
    shown = capsys.readouterr().err
    assert (
        shown.startswith("refused: game 'odd_game:Game' cannot be made: ")
        and said in shown
        and shown.count("\n") == 1
    )
    assert not Path("results").exists()


def test_a_full_directory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.request.preflight.SMALLEST_FREE_BYTES", 2**62)
    assert submit.main(["ppo", "-p", "outdir=results/x"]) == 2
    assert "MiB are free there" in capsys.readouterr().err
    assert files() == []


@pytest.mark.parametrize(
    "arguments", [["-p", "outdir=loop"], ["-p", "outdir=loop/x"], ["--storage", "loop"]]
)
def test_a_symbolic_link_that_leads_to_itself(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loop").symlink_to("loop")
    assert submit.main(["ppo", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("refused: parameter 'outdir' cannot be") and shown.count("\n") == 1
    assert files() == ["loop"]


WITHOUT_PRIVILEGE = "from tests.modes import respect_modes; from workflows import submit; respect_modes(); raise SystemExit(submit.main())"


def test_a_directory_that_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results").chmod(0o555)
    command = [sys.executable, "-c", WITHOUT_PRIVILEGE, "ppo", "-p", "outdir=results/x"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert (
        f"{tmp_path / 'results'} is not writable for user {os.geteuid()} (mode 555" in ended.stderr
    )
    assert files() == ["results"]


def test_manifest_is_the_committed_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(["ppo", "--manifest"]) == 0
    assert capsys.readouterr().out == (render.FOLDER / "ppo.yaml").read_text()


def test_manifest_with_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.yaml").write_text("gpu_image: mine:2\nparallelism: 3\n")
    arguments = [
        "ppo",
        "--manifest",
        "--cluster",
        "own.yaml",
        "-p",
        "game=ALE/Pong-v5",
        "--name",
        "pong",
        "--deadline",
        "60",
    ]
    assert submit.main(arguments) == 0
    printed = manifest_yaml.load(capsys.readouterr().out)
    values = {one["name"]: one["value"] for one in printed["spec"]["arguments"]["parameters"]}
    assert (values["game"], values["outdir"], values["gpu_image"]) == (
        "ALE/Pong-v5",
        "/storage/ppo-pong",
        "mine:2",
    )
    assert (
        printed["metadata"] == {"name": "pong"} and printed["spec"]["activeDeadlineSeconds"] == 60
    )


@pytest.mark.parametrize("evaluations", [0, 5])
def test_dry_run(evaluations: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        submit.main(
            [
                "ppo",
                "-p",
                "game=cartpole",
                "-p",
                "runs=3",
                "-p",
                "epochs=196",
                "-p",
                "outdir=results/x",
                "-p",
                f"evaluations={evaluations}",
                "--dry-run",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "this machine" in shown and "3 x 196 epochs x 256 steps = 3 x 50,176 steps" in shown
    experiment = Experiment(evaluations=evaluations)
    last = [step.name for step in pipeline.asked("exit", experiment)]
    first, *after = (*pipeline.names("experiment"), *last)
    inside = ", ".join(step.name for step in pipeline.asked("run", experiment))
    assert f"{first}, 3 x ({inside}), {', '.join(after)}" in shown
    assert "  * runs " in shown and "    seed " in shown and "directory    results/x" in shown
    assert files() == []


def test_list_and_help_name_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--list"], ["ppo", "--list"], ["ppo", "--help"]):
        assert submit.main(arguments) == 0
        shown = capsys.readouterr().out
        for info in parameters("ppo"):
            assert f"\n  {info.name} " in shown and info.help.split()[0] in shown
    assert submit.main(["--list"]) == 0
    assert "space_invaders" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "storage", "outdir", "directory"),
    [
        (None, "storage", "/storage/ppo-cartpole", "storage/ppo-cartpole"),
        ("/storage/a/b", "storage", "/storage/a/b", "storage/a/b"),
        ("results/x", "results", "/storage/x", "results/x"),
        ("x", ".", "/storage/x", "x"),
        ("results/deep/x/", "results/deep", "/storage/x", "results/deep/x"),
    ],
)
def test_where_the_results_go(
    given: str | None, storage: str, outdir: str, directory: str, tmp_path: Path
) -> None:
    options = submit.parse(["ppo", *(["-p", f"outdir={given}"] if given else [])])
    submission = submit._checked(options, submit.load_cluster(None), local=True)
    assert submission.place is not None
    assert submission.place.storage == (tmp_path / storage).resolve()
    assert submission.place.outdir == outdir == submission.resolved.experiment.outdir
    assert submission.place.directory == Path(directory)
    values = {
        one["name"]: one["value"] for one in submission.manifest["spec"]["arguments"]["parameters"]
    }
    assert values["outdir"] == outdir


def test_a_storage_folder_of_ones_own(tmp_path: Path) -> None:
    options = submit.parse(["ppo", "--storage", "disk", "-p", "outdir=disk/a/x"])
    submission = submit._checked(options, submit.load_cluster(None), local=True)
    assert submission.place is not None and submission.place.outdir == "/storage/a/x"
    assert submission.place.storage == tmp_path.resolve() / "disk"


@pytest.mark.parametrize(
    ("game", "label"),
    [
        ("cartpole", "cartpole"),
        ("ALE/Pong-v5", "pong"),
        ("Blackjack-v1", "blackjack-v1"),
        ("pkg.mod:My_Game", "pkg-mod-my-game"),
    ],
)
def test_name_and_directory_from_the_game(game: str, label: str) -> None:
    submission = submit._checked(
        submit.parse(["ppo", "-p", f"game={game}"]), submit.load_cluster(None), local=False
    )
    assert submission.name.startswith(f"ppo-{label}-") and check_name(submission.name)
    assert submission.resolved.experiment.outdir == f"/storage/ppo-{label}"


def test_start_up_is_light(tmp_path: Path) -> None:
    """The check of a request imports neither Hera (1.3 s) nor torch nor pandas."""
    code = """
import sys
from workflows import submit
from workflows.dag import render
render._edited_since = lambda committed: False  # here somebody may be at work
submit.main(["ppo", "--dry-run"])
print(*sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert not loaded & {
        "hera",
        "torch",
        "pandas",
        "requests",
        "gymnasium",
        "pydantic",
        "matplotlib",
        "scipy",
    }


IMAGES = ("-p=gpu_image=registry.example/rl:1-gpu", "-p=cpu_image=registry.example/rl:1-cpu")
"""Images that some registry may have, of which nobody is warned."""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--list",), 0),
        (("ppo", "--help"), 0),
        (("ppo", "--manifest"), 0),
        (("ppo", "--dry-run"), 0),
        (("ppo", "--local", "-p", "outdir=results/x"), 130),
        pytest.param(("ppo", "--name", "ppo-1", *IMAGES), 130, marks=pytest.mark.slow),
        pytest.param(("ppo", "--name", "ppo-2", "--detach", *IMAGES), 130, marks=pytest.mark.slow),
        (("--follow", "ppo-0"), 130),
    ],
)
def test_a_reader_that_has_left(arguments: Sequence[str], code: int) -> None:
    """What is only shown has been shown enough; of an experiment nobody was told how it ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with LoopbackArgo().running() as argo, os.fdopen(writing, "wb") as closed:
        argo.workflows["ppo-0"] = {
            "metadata": {"name": "ppo-0"},
            "spec": manifest_yaml.load((render.FOLDER / "ppo.yaml").read_text())["spec"],
        }
        ended = subprocess.run(
            [sys.executable, "-m", "workflows.submit", *arguments],
            env=os.environ | argo.environment, stdout=closed, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (code, "")


@pytest.mark.parametrize(
    ("broken", "error", "said"),
    [
        (
            "tempfile.mkdtemp",
            FileNotFoundError(2, "No usable temporary directory found"),
            "no temporary folder can be made",
        ),
        (
            "threading.Thread.start",
            RuntimeError("can't start new thread"),
            "this machine grants no further thread",
        ),
        (
            "subprocess.Popen",
            BlockingIOError(11, "Resource temporarily unavailable"),
            "the supervisor of the pods cannot be started",
        ),
    ],
)
def test_a_machine_that_can_start_nothing_is_said_in_one_line(
    broken: str,
    error: Exception,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A full table of processes, a full disk: each of them was a traceback (defect A3 of docs/faults.md)."""

    def refuse(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(broken, refuse)
    assert submit.main(["ppo", "--local", "-p", "game=cartpole", "-p", "outdir=results/x"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("failed: ") and said in shown and shown.count("\n") == 1
    assert files() == []


def test_the_console_script_is_this_command_and_says_its_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    command = EntryPoint("rl-dag", scripts["rl-dag"], "console_scripts").load()
    monkeypatch.setattr(sys, "argv", ["rl-dag", "--version"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert command() == 0
    assert capsys.readouterr().out == f"rl-training-dag {VERSION}\n"
    assert "" in sys.path, "modules in the working directory are found"
