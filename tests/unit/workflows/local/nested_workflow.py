"""Two experiments in one workflow, each with runs whose train stage is a learner with actors: what
the live view has to show, small enough to run."""

from __future__ import annotations

from tests.unit.workflows.local.local_workflows import Document, pod, task, with_inputs, workflow

OUTDIR = "--outdir={{inputs.parameters.outdir}}"
RUN = "--run={{inputs.parameters.run}}"
INPUTS = ("outdir", "run", "member")
MEMBER = "--member={{inputs.parameters.member}}"
OWN = "/storage/study"


def step(name: str, *told: str, template: str = "", fails: str = "never") -> Document:
    """A pod as ours are: its module, and what it is told. It fails where these words are among its
    arguments."""
    program = f"import sys; sys.exit(3 if {fails!r} in ' '.join(sys.argv) else 0)"
    body = pod(template or name, f"{program}  # steps.{name.replace('-', '_')}", OUTDIR, *told)
    return with_inputs(
        body, *(word for word in INPUTS if f".{word}}}}}" in " ".join([OUTDIR, *told]))
    )


def below(*names: str) -> dict[str, str]:
    """Arguments that hand inputs on."""
    return {name: f"{{{{inputs.parameters.{name}}}}}" for name in names}


def study(*experiments: str, actors: int = 3) -> Document:
    """`first` is whole, but for one of its actors; in `second` the learner of run 1 fails."""
    stage = [
        task("learner", "learner", arguments=below("outdir", "run")),
        task(
            "actors",
            "actor",
            arguments=below("outdir", "run") | {"member": "{{item}}"},
            withSequence={"count": str(actors)},
            continueOn={"failed": True},
        ),
    ]
    run = [
        task("train", "train", arguments=below("outdir", "run")),
        task("evaluate", "evaluate", depends="train.Succeeded", arguments=below("outdir", "run")),
    ]
    ended = "runs.Succeeded || runs.Failed || runs.Errored"
    experiment = [
        task("prepare", "prepare", arguments=below("outdir")),
        task(
            "runs",
            "run",
            depends="prepare.Succeeded",
            withItems=[0, 1],
            arguments=below("outdir") | {"run": "{{item}}"},
        ),
        task("average", "average", depends=ended, arguments=below("outdir")),
    ]
    entry = [
        task(name, "experiment", arguments={"outdir": f"{{{{workflow.parameters.outdir}}}}/{name}"})
        for name in experiments
    ]
    finish = [
        task(
            "reports",
            "report",
            withItems=[f"{OWN}/{name}" for name in experiments],
            arguments={"outdir": "{{item}}"},
        )
    ]
    return workflow(
        entry,
        with_inputs({"name": "experiment", "dag": {"tasks": experiment}}, "outdir"),
        with_inputs({"name": "run", "dag": {"tasks": run}}, "outdir", "run"),
        with_inputs({"name": "train", "dag": {"tasks": stage}}, "outdir", "run"),
        {"name": "finish", "dag": {"tasks": finish}},
        step("train", RUN, "--role=learner", template="learner", fails="/second --run=1"),
        step("train", RUN, "--role=actor", MEMBER, template="actor", fails="--member=2"),
        step("prepare", "--algorithm=ppo"),
        step("evaluate", RUN),
        step("average"),
        step("report"),
        name="wf",
        onExit="finish",
        arguments={"parameters": [{"name": "outdir", "value": OWN}]},
    )
