"""A search as an Argo `Workflow`: trials that are proposed one after the other, and the winner again.

plan-search ─▶ lanes[l] ─▶ choose ─▶ experiments[i] … ─▶ compare ─▶ plot-comparison

lane:   propose ─▶ trials[one] ─▶ tell
              └───────────────────▶ again: lane
trial:  prepare ─▶ rung
rung:   runs[i] (train until the rung) ─▶ judge ─▶ evaluate[i]
                                            ├────▶ whole[one]: experiment
                                            └────▶ again: rung, the next one

exit handler, finish: report-search, always last; behind it notify, if an address is to be told.

A lane calls itself for its next trial, and a rung for the next one, so a slow trial holds nobody up. The
controller stops at 100 nested calls: `config.study.search` bounds both. `propose` lists no trial or one, under
its topology; its name stands in the names of the nodes. A trial that was trained to its end is evaluated and
no more, unless the search says that trials have figures, films and pages: then the steps of an experiment
follow, whose training has ended before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow

from config import pipeline
from config.algorithms.descriptor import ACTOR_LEARNER, TOPOLOGIES
from config.cluster import Cluster
from config.study.workflow_parameters import OF_CLUSTER, OF_SEARCH
from workflows.dag.experiment import (
    RESULTS,
    after_training,
    at_the_end,
    experiment,
    in_order,
    prepare,
    workflow,
)
from workflows.dag.notice import notify, tell_after
from workflows.dag.pods import cpu, handed_on, inputs, inputs_of, outputs
from workflows.dag.study import DEFAULTS, DIRECTORY, ENDED, IMAGE, SUFFIXES
from workflows.dag.topologies import active_runs, beside_train, train

AGAIN = f"{DIRECTORY}/again"
"""The directory of the winner's study."""
ONCE = TaskResult.succeeded | TaskResult.failed | TaskResult.errored


def build_search(cluster: Cluster, active: int) -> Workflow:
    """The workflow of any search for one cluster. active: how many experiments of the winner's study are active
    at the same time; how many trials are is for the search to say.
    """
    values = {name: getattr(cluster, name) for name in OF_CLUSTER}
    arguments = [
        Parameter(name=name, value=values.get(name, ""), description=description)
        for name, description in OF_SEARCH.items()
    ]
    with workflow("search-", "search", arguments, cluster) as made:
        own = {step.name: _of_search(cluster, step) for step in pipeline.SEARCH_STEPS}
        pods = after_training(cluster)
        last = at_the_end(cluster, "Running")
        trials, experiments = {}, {}
        for topology in TOPOLOGIES:
            suffix = SUFFIXES[topology]
            first = prepare(topology, cluster, ["--study"], defaults=DEFAULTS, suffix=suffix)
            several = topology == ACTOR_LEARNER
            experiments[topology] = experiment(
                topology, cluster, first, pods, several_learners=several, last=last, suffix=suffix
            )
            climb = _climb(topology, cluster, suffix, several_learners=several)
            rung = _rung(
                topology, cluster, climb, own["judge"], pods[pipeline.EVALUATE],
                experiments[topology], suffix,
            )  # fmt: skip
            trials[topology] = _trial(first, rung, suffix)
        lane = _lane(own, trials)
        winner = _winner(experiments, active)
        with DAG(name="search"):
            _tasks(own, lane, winner)
        notice = notify(cluster)
        with DAG(name="finish"):
            tell_after(_task(own["report-search"]), notice)
    return in_order(made)


def _climb(topology: str, cluster: Cluster, suffix: str, *, several_learners: bool) -> DAG:
    """The template of a run up to a rung: its training alone."""
    training = train(topology, cluster, suffix, pauses=True)
    members = beside_train(
        topology, cluster, suffix, several_learners=several_learners, pauses=True
    )
    with DAG(name=f"climb{suffix}", inputs=inputs(*inputs_of([training, *members]))) as climb:
        _task(training, name=pipeline.TRAIN, arguments=handed_on(training))
        for member in members:
            name = str(member.name).removesuffix("-until")
            _task(member, name=name, arguments=handed_on(member))
    return climb


def _rung(
    topology: str,
    cluster: Cluster,
    climb: DAG,
    judge: Container,
    evaluate: Container | DAG,
    whole: DAG,
    suffix: str,
) -> DAG:
    """The template of a trial from one rung to the next, which calls itself."""
    needed = inputs_of([climb, evaluate], but=["run"])
    with DAG(
        name=f"{pipeline.RUNG}{suffix}",
        inputs=inputs(*dict.fromkeys([*needed, pipeline.RUNS])),
        parallelism=active_runs(topology, cluster),
    ) as rung:
        runs = _task(
            climb,
            name=pipeline.RUNS,
            arguments=handed_on(climb) | {"run": "{{item}}"},
            with_param=_given(pipeline.RUNS),
        )
        judged = _task(judge, arguments=handed_on(judge))
        runs.next(judged, on=ONCE)
        evaluated = _task(
            evaluate,
            arguments=handed_on(evaluate) | {"run": "{{item}}"},
            with_param=judged.get_parameter(pipeline.EVALUATED).value,
        )
        drawn = _task(
            whole,
            name=pipeline.WHOLE,
            arguments={"outdir": _given("outdir")},
            with_param=judged.get_parameter(pipeline.WHOLE).value,
        )
        until = {pipeline.UNTIL: str(judged.get_parameter(pipeline.UNTIL).value)}
        again = _task(
            rung,
            name=pipeline.AGAIN,
            arguments=handed_on(rung) | until,
            when=f"{judged.get_parameter(pipeline.AGAIN).value} == true",
        )
        for task in (evaluated, drawn, again):
            judged.next(task, on=TaskResult.succeeded)
    return rung


def _trial(first: Container, rung: DAG, suffix: str) -> DAG:
    """The template of a trial: an experiment whose runs are trained from rung to rung."""
    with DAG(name=f"{pipeline.TRIAL}{suffix}", inputs=inputs("outdir", pipeline.UNTIL)) as trial:
        prepared = _task(first, name=pipeline.PREPARE, arguments=handed_on(first))
        told = {str(one.name) for one in cast(list[Parameter], first.outputs or [])}
        arguments = {
            name: str(prepared.get_parameter(name).value) if name in told else text
            for name, text in handed_on(rung).items()
        }
        climbing = _task(rung, name=pipeline.RUNG, arguments=arguments)
        prepared.next(climbing, on=TaskResult.succeeded)
    return trial


def _lane(own: Mapping[str, Container], trials: Mapping[str, DAG]) -> DAG:
    """The template of one trial after the other, which calls itself."""
    with DAG(name=pipeline.LANE, inputs=inputs(pipeline.LANE)) as lane:
        proposed = _task(own["propose"], arguments=handed_on(own["propose"]))
        more = f"{proposed.get_parameter(pipeline.AGAIN).value} == true"
        name = str(proposed.get_parameter(pipeline.TRIAL).value)
        called = []
        for topology, template in trials.items():
            arguments = {
                "outdir": f"{_root()}/experiments/{{{{item}}}}",
                pipeline.UNTIL: str(proposed.get_parameter(pipeline.UNTIL).value),
            }
            listed = proposed.get_parameter(pipeline.EXPERIMENTS[topology]).value
            called.append(
                _task(
                    template, name=_loop_of_trials(topology), arguments=arguments, with_param=listed
                )
            )
            proposed.next(called[-1], on=TaskResult.succeeded)
        tell = _task(own[pipeline.TELL], arguments={pipeline.TRIAL: name}, when=more)
        for loop in called:
            loop.next(tell, on=ENDED)
        again = _task(lane, name=pipeline.AGAIN, arguments=handed_on(lane), when=more)
        proposed.next(tell, on=TaskResult.succeeded)
        proposed.next(again, on=TaskResult.succeeded)
        tell.next(again, on=ENDED)
    return lane


def _loop_of_trials(topology: str) -> str:
    return f"trials{SUFFIXES[topology]}"


def _winner(experiments: Mapping[str, DAG], active: int) -> DAG:
    """The template of the winner's experiments."""
    listed = tuple(pipeline.EXPERIMENTS.values())
    with DAG(name="winner", inputs=inputs(*listed), parallelism=active) as winner:
        for topology, template in experiments.items():
            name = pipeline.EXPERIMENTS[topology]
            outdir = f"{_root()}/again/experiments/{{{{item}}}}"
            _task(template, name=name, arguments={"outdir": outdir}, with_param=_given(name))
    return winner


def _tasks(own: Mapping[str, Container], lane: DAG, winner: DAG) -> None:
    """The tasks of the search itself."""
    planned = _task(own["plan-search"])
    lanes = _task(
        lane,
        name=pipeline.LANES,
        arguments={pipeline.LANE: "{{item}}"},
        with_param=planned.get_parameter(pipeline.LANES).value,
    )
    chosen = _task(own["choose"])
    listed = {
        output: str(chosen.get_parameter(output).value) for output in pipeline.EXPERIMENTS.values()
    }
    measured = _task(winner, name="winner", arguments=listed)
    compared, plotted = (_task(own[name]) for name in ("compare", "plot-comparison"))
    planned.next(lanes, on=TaskResult.succeeded)
    lanes.next(chosen, on=RESULTS["ended"])
    chosen.next(measured, on=TaskResult.succeeded)
    measured.next(compared, on=RESULTS["ended"])
    compared.next(plotted, on=TaskResult.succeeded)


def _of_search(cluster: Cluster, step: pipeline.Step) -> Container:
    """The template of a step of the search."""
    told: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
        "plan-search": ((), [DIRECTORY, "--workflow-parameters={{workflow.parameters.json}}"]),
        "propose": ((pipeline.LANE,), [DIRECTORY, f"--lane={_given(pipeline.LANE)}"]),
        "judge": (
            ("outdir", pipeline.UNTIL),
            [f"--outdir={_given('outdir')}", f"--until={_given(pipeline.UNTIL)}"],
        ),
        "tell": ((pipeline.TRIAL,), [DIRECTORY, f"--trial={_given(pipeline.TRIAL)}"]),
        "choose": ((), [DIRECTORY]),
        "compare": ((), [AGAIN]),
        "plot-comparison": ((), [AGAIN]),
        "report-search": ((), [DIRECTORY, "--workflow-status={{workflow.status}}"]),
    }
    given, args = told[step.name]
    return cpu(
        cluster,
        step.name,
        step.module,
        own=given,
        image=IMAGE,
        deadline_s=step.deadline_s,
        args=list(args),
        outputs=outputs(step),
    )


def _task(template: Container | DAG, **options: Any) -> Task:
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    return cast(Task, template(**{"name": template.name, **options}))


def _root() -> str:
    return "{{workflow.parameters.outdir}}"


def _given(name: str) -> str:
    return f"{{{{inputs.parameters.{name}}}}}"
