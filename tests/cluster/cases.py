"""More small workflows for both engines: supported fields and combinations that
`controller-cases.json` does not have.

Each is a function of nothing but its name; what a container writes is a pure function of its
arguments, so that outputs can be compared.
"""

from __future__ import annotations

from typing import Any

IMAGE = "python:3.11"
ECHO = "import os,sys;open(os.environ['OUT'],'w').write(' '.join(sys.argv[1:]))"
EXIT = "import sys;sys.exit(int(sys.argv[1]))"
FIELDS = "import os,sys;e=os.environ;print(e['POD'] == sys.argv[1], e['B'], os.getcwd(), bool(e['IP']), file=open(e['OUT'], 'w'))"
JOIN = "x.Succeeded || x.Failed || x.Errored"

Json = dict[str, Any]


def container(
    name: str,
    code: str,
    *args: str,
    inputs: list[Any] | None = None,
    output: bool | str = False,
    **more: Any,
) -> Json:
    """A template that runs Python code; inputs are names, or (name, default); `output` declares
    /outputs/out, as text with that default."""
    template: Json = {
        "name": name,
        "container": {
            "image": IMAGE,
            "command": ["python3", "-c", code],
            "args": list(args),
            "env": [{"name": "OUT", "value": "/outputs/out"}, *more.pop("env", [])],
            "volumeMounts": [{"name": "outputs", "mountPath": "/outputs"}, *more.pop("mounts", [])],
            **{key: more.pop(key) for key in ("workingDir", "resources") if key in more},
        },
        **more,
    }
    if inputs:
        template["inputs"] = {
            "parameters": [
                {"name": i} if isinstance(i, str) else {"name": i[0], "default": i[1]}
                for i in inputs
            ]
        }
    if output:
        source = {"path": "/outputs/out"} | ({"default": output} if isinstance(output, str) else {})
        template["outputs"] = {"parameters": [{"name": "out", "valueFrom": source}]}
    return template


def echo(name: str = "echo", *, inputs: tuple[Any, ...] = ("v",), **more: Any) -> Json:
    names = [i if isinstance(i, str) else i[0] for i in inputs]
    return container(
        name,
        ECHO,
        *[f"{{{{inputs.parameters.{n}}}}}" for n in names],
        inputs=list(inputs),
        output=True,
        **more,
    )


def leave(name: str = "leave", **more: Any) -> Json:
    return container(name, EXIT, "{{inputs.parameters.v}}", inputs=["v"], **more)


def dag(name: str, *tasks: Json, **more: Any) -> Json:
    parallelism = {"parallelism": more.pop("parallelism")} if "parallelism" in more else {}
    return {"name": name, "dag": {"tasks": list(tasks)}, **parallelism, **more}


def task(
    name: str,
    template: str,
    depends: str | None = None,
    *,
    arguments: dict[str, str] | None = None,
    **more: Any,
) -> Json:
    built: Json = {"name": name, "template": template, **more}
    if depends:
        built["depends"] = depends
    if arguments:
        built["arguments"] = {
            "parameters": [{"name": key, "value": value} for key, value in arguments.items()]
        }
    return built


def workflow(
    name: str,
    *templates: Json,
    parameters: dict[str, Any] | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    arguments = (
        {"arguments": {"parameters": [{"name": k, "value": v} for k, v in parameters.items()]}}
        if parameters
        else {}
    )
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": f"m-{name}", **(metadata or {})},
        "spec": {
            "entrypoint": "main",
            **arguments,
            "volumes": [{"name": "outputs", "emptyDir": {}}, *spec.pop("volumes", [])],
            **spec,
            "templates": list(templates),
        },
    }


def inputs_of(*names: str, **defaults: str) -> Json:
    given = [{"name": name, "default": default} for name, default in defaults.items()]
    return {"inputs": {"parameters": [*({"name": name} for name in names), *given]}}


def called() -> list[Json]:
    """Our experiment's shape: a DAG with a directory and parameters, as the entry and called."""
    every = inputs_of("outdir", parameters="{{workflow.parameters.json}}")
    experiment = dag(
        "experiment",
        task("prepare", "echo", arguments={"v": "{{inputs.parameters.parameters}}"}),
        task("next", "echo", "prepare.Succeeded", arguments={"v": "{{inputs.parameters.outdir}}"}),
        **every,
    )
    one = {"outdir": "/storage/a", "parameters": '[{"name": "seed", "value": "1"}]'}
    item = {"v": "{{item}} {{workflow.status}}"}
    listed = {"directories": '["/storage/a", "/storage/b/c"]'}
    return [
        workflow(
            "entryinputs",
            experiment,
            echo(),
            dag(
                "finish", task("report", "echo", arguments={"v": "{{workflow.parameters.outdir}}"})
            ),
            entrypoint="experiment",
            onExit="finish",
            parameters={"outdir": "/storage/a"},
        ),
        workflow(
            "calledtwice",
            dag(
                "main",
                task("first", "experiment", arguments=one),
                task("second", "experiment", arguments={"outdir": "/storage/b/c"}),
            ),
            experiment,
            echo(),
            dag(
                "reports",
                task(
                    "report",
                    "echo",
                    arguments=item,
                    withParam="{{workflow.parameters.directories}}",
                ),
            ),
            onExit="reports",
            parameters=listed,
        ),
    ]


def substitution() -> list[Json]:
    words = " ".join(
        f"{{{{workflow.{key}}}}}" for key in ("name", "serviceAccountName", "mainEntrypoint")
    )
    return [
        workflow(
            "globals",
            dag("main", task("a", "echo", arguments={"v": words})),
            echo(),
            serviceAccountName="experiment",
        ),
        workflow(
            "nopriority",
            dag("main", task("a", "echo", arguments={"v": "{{workflow.priority}}"})),
            echo(),
        ),
        workflow(
            "labels",
            dag(
                "main",
                task(
                    "a",
                    "echo",
                    arguments={
                        "v": "{{workflow.labels.team}} {{workflow.annotations.example.org/note}}"
                    },
                ),
            ),
            echo(),
            metadata={"labels": {"team": "red"}, "annotations": {"example.org/note": "a b"}},
        ),
        workflow(
            "onlycontainer",
            container("main", ECHO, "{{workflow.parameters.p}}", output=True),
            parameters={"p": "x"},
        ),
        workflow(
            "numbers",
            dag(
                "main",
                task(
                    "a",
                    "echo",
                    arguments={"v": " ".join(f"{{{{workflow.parameters.{k}}}}}" for k in "abcdef")},
                ),
            ),
            echo(),
            parameters={"a": 100000.0, "b": 0.10, "c": True, "d": 7, "e": 1e-4, "f": 1e21},
        ),
        workflow(
            "twoinputs",
            dag(
                "main",
                task("a", "echo", arguments={"w": "{{workflow.parameters.p}}"}),
                task("b", "echo", arguments={"v": "", "w": "  "}),
            ),
            echo(inputs=(("v", "dv"), ("w", "dw"))),
            parameters={"p": 'it\'s "q" {"a": [1]}'},
        ),
        workflow(
            "fields",
            dag("main", task("a", "f", arguments={"v": "mp"})),
            container(
                "f",
                FIELDS,
                "{{pod.name}}",
                inputs=["v"],
                output=True,
                workingDir="/t{{inputs.parameters.v}}",
                env=[
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "B", "value": "{{inputs.parameters.v}}-{{workflow.name}}"},
                ],
            ),
        ),
        workflow(
            "spaces",
            dag(
                "main",
                task(
                    "a",
                    "echo",
                    arguments={"v": "{{ workflow.parameters.p }}|{{workflow.parameters.nosuch}}"},
                    when="{{=workflow.parameters.p}} == x",
                ),
            ),
            echo(),
            parameters={"p": "x"},
        ),
        workflow(
            "expressions",
            dag(
                "main",
                task("p", "echo", arguments={"v": "7"}),
                task(
                    "sum",
                    "echo",
                    "p",
                    arguments={
                        "v": "{{=asInt(tasks.p.outputs.parameters.out) + 1}} {{=tasks['p'].status}}"
                    },
                ),
                task(
                    "if",
                    "echo",
                    "p",
                    arguments={
                        "v": "{{=asInt(tasks.p.outputs.parameters.out) > 5 ? 'big' : 'small'}}"
                    },
                ),
                task(
                    "list",
                    "echo",
                    arguments={
                        "v": "{{=toJson(filter([1,2,3,4], # > 2))}} {{=len('abc')}} {{=2 ** 3}} {{=7 % 3}}"
                    },
                ),
                task(
                    "when",
                    "echo",
                    "p",
                    arguments={"v": "w"},
                    when="{{=asFloat(tasks.p.outputs.parameters.out) >= 30.0}}",
                ),
            ),
            echo(),
        ),
    ]


def outputs() -> list[Json]:
    inner = dag(
        "inner",
        task("e", "echo", arguments={"v": "{{inputs.parameters.v}}"}),
        **inputs_of("v"),
        outputs={
            "parameters": [
                {"name": "res", "valueFrom": {"parameter": "{{tasks.e.outputs.parameters.out}}"}}
            ]
        },
    )
    two = container(
        "two", "open('/outputs/a','w').write('A\\n');open('/outputs/b','w').write('B\\n\\n')"
    )
    two["outputs"] = {
        "parameters": [{"name": n, "valueFrom": {"path": f"/outputs/{n}"}} for n in "ab"]
    }
    return [
        workflow(
            "dagoutput",
            dag(
                "main",
                task("i", "inner", arguments={"v": "x"}),
                task("u", "echo", "i", arguments={"v": "{{tasks.i.outputs.parameters.res}}"}),
            ),
            inner,
            echo(),
        ),
        workflow(
            "loopoutput",
            dag(
                "main",
                task("l", "inner", arguments={"v": "{{item}}"}, withItems=["a", "b"]),
                task(
                    "u",
                    "echo",
                    "l.Succeeded",
                    arguments={"v": "{{tasks.l.outputs.parameters.res}}"},
                ),
                task(
                    "again",
                    "echo",
                    "l.Succeeded",
                    arguments={"v": "{{item.res}}"},
                    withParam="{{tasks.l.outputs.parameters}}",
                ),
            ),
            inner,
            echo(),
        ),
        workflow(
            "twooutputs",
            dag(
                "main",
                task("t", "two"),
                task(
                    "u",
                    "echo",
                    "t",
                    arguments={
                        "v": "{{tasks.t.outputs.parameters.a}}{{tasks.t.outputs.parameters.b}}"
                    },
                ),
            ),
            two,
            echo(),
        ),
        workflow(
            "decision",
            dag(
                "main",
                task("runs", "one", arguments={"v": "{{item}}"}, withItems=["true", "false"]),
                task(
                    "x",
                    "echo",
                    "runs.Succeeded || runs.Failed || runs.Errored",
                    arguments={"v": "end"},
                ),
            ),
            dag(
                "one",
                task("train", "echo", arguments={"v": "{{inputs.parameters.v}}"}),
                task(
                    "evaluate",
                    "echo",
                    "train.Succeeded",
                    arguments={"v": "e"},
                    when='"{{tasks.train.outputs.parameters.out}}" == "true"',
                ),
                task("plot", "echo", "evaluate.Succeeded", arguments={"v": "p"}),
                task("curve", "echo", "train.Succeeded", arguments={"v": "c"}),
                **inputs_of("v"),
            ),
            echo(),
        ),
        workflow(
            "unreadable",
            dag("main", task("a", "dir")),
            container("dir", "import os;os.mkdir('/outputs/out')", output="D"),
        ),
    ]


def loops() -> list[Json]:
    return [
        workflow(
            "nestedloops",
            dag(
                "main",
                task(
                    "o",
                    "row",
                    arguments={"v": "{{item}}"},
                    withSequence={"count": "{{workflow.parameters.n}}"},
                ),
            ),
            dag(
                "row",
                task(
                    "i",
                    "echo",
                    arguments={"v": "{{inputs.parameters.v}}{{item}}"},
                    withItems=["a", "b"],
                ),
                **inputs_of("v"),
            ),
            echo(),
            parameters={"n": "2"},
        ),
        workflow(
            "parammaps",
            dag(
                "main",
                task(
                    "l",
                    "echo",
                    arguments={"v": "{{item.a}}/{{item.b}}"},
                    withParam="{{workflow.parameters.list}}",
                ),
            ),
            echo(),
            parameters={"list": '[{"b": "x y", "a": 1}, {"a": true, "b": [1, 2]}]'},
        ),
        workflow(
            "badsequence",
            dag(
                "main",
                task(
                    "l",
                    "echo",
                    arguments={"v": "{{item}}"},
                    withSequence={"count": "{{workflow.parameters.n}}"},
                ),
            ),
            echo(),
            parameters={"n": "x"},
        ),
        workflow(
            "emptyloop",
            dag(
                "main",
                task(
                    "l",
                    "echo",
                    arguments={"v": "{{item}}"},
                    withParam="{{workflow.parameters.list}}",
                ),
                task("x", "echo", "l", arguments={"v": "bare"}),
                task("y", "echo", "l.Succeeded || l.Failed || l.Errored", arguments={"v": "no"}),
            ),
            echo(),
            parameters={"list": "[]"},
        ),
        workflow(
            "loopfails",
            dag(
                "main",
                task("x", "leave", arguments={"v": "{{item}}"}, withItems=["1", "2"]),
                task("all", "echo", "x.AllFailed", arguments={"v": "all"}),
                task("any", "echo", "x.AnySucceeded", arguments={"v": "any"}),
            ),
            leave(),
            echo(),
        ),
        workflow(
            "parallel",
            dag("main", *[task(n, "slow") for n in "abc"], parallelism=1),
            container("slow", "import time;time.sleep(2)"),
        ),
    ]


def endings() -> list[Json]:
    say = container("bye", ECHO, "{{workflow.status}}", output=True)
    return [
        workflow(
            "exitfails",
            dag("main", task("a", "echo", arguments={"v": "x"})),
            echo(),
            container("bye", "import sys;sys.exit(5)"),
            onExit="bye",
        ),
        workflow(
            "bothfail",
            dag("main", task("a", "leave", arguments={"v": "1"})),
            leave(),
            container("bye", "import sys;sys.exit(5)"),
            onExit="bye",
        ),
        workflow(
            "exitretries",
            dag("main", task("a", "echo", arguments={"v": "x"})),
            echo(),
            container(
                "bye",
                "import sys;sys.exit(0 if sys.argv[1] == '1' else 1)",
                "{{retries}}",
                retryStrategy={"limit": "2"},
            ),
            onExit="bye",
        ),
        workflow(
            "exitfinal",
            dag("main", task("a", "echo", arguments={"v": "x"})),
            echo(),
            container(
                "bye",
                "import sys;sys.exit(5)",
                retryStrategy={
                    "limit": "2",
                    "retryPolicy": "Always",
                    "expression": "!(asInt(lastRetry.exitCode) in [5])",
                },
            ),
            onExit="bye",
        ),
        workflow(
            "exitdag",
            dag("main", task("a", "leave", arguments={"v": "1"})),
            leave(),
            dag("bye", task("one", "say"), task("two", "say", "one")),
            say | {"name": "say"},
            onExit="bye",
        ),
        workflow(
            "deadlineexit",
            dag(
                "main",
                task("s", "slow"),
                task("x", "echo", "s.Succeeded || s.Failed || s.Errored", arguments={"v": "no"}),
            ),
            container(
                "slow",
                "import signal,sys,time;signal.signal(signal.SIGTERM,lambda *_: sys.exit(75));time.sleep(60)",
            ),
            echo(),
            say,
            onExit="bye",
            activeDeadlineSeconds=6,
        ),
        workflow(
            "tolerated",
            dag(
                "main",
                task("x", "run", arguments={"v": "{{item}}"}, withItems=["0", "3"]),
                task("average", "echo", JOIN, arguments={"v": "avg"}),
                task("plot", "echo", "average.Succeeded", arguments={"v": "plot"}),
            ),
            dag(
                "run",
                task("train", "leave", arguments={"v": "{{inputs.parameters.v}}"}),
                task("evaluate", "echo", "train.Succeeded", arguments={"v": "e"}),
                **inputs_of("v"),
            ),
            leave(),
            echo(),
            say,
            onExit="bye",
        ),
        workflow(
            "deadactors",
            dag(
                "main",
                task("x", "train"),
                task("next", "echo", "x.Succeeded", arguments={"v": "n"}),
            ),
            dag(
                "train",
                task("learner", "leave", arguments={"v": "0"}),
                task(
                    "actors",
                    "leave",
                    arguments={"v": "{{item}}"},
                    withSequence={"start": "0", "end": "1"},
                    continueOn={"failed": True, "error": True},
                ),
            ),
            leave(),
            echo(),
        ),
        workflow(
            "deadlearner",
            dag("main", task("x", "train"), task("next", "echo", JOIN, arguments={"v": "n"})),
            dag(
                "train",
                task("learner", "leave", arguments={"v": "3"}),
                task(
                    "actors",
                    "leave",
                    arguments={"v": "{{item}}"},
                    withItems=["0", "0"],
                    continueOn={"failed": True, "error": True},
                ),
            ),
            leave(),
            echo(),
        ),
        workflow(
            "continueerror",
            dag(
                "main",
                task("a", "noout", continueOn={"error": True}),
                task("b", "noout", continueOn={"failed": True}),
                task("c", "echo", arguments={"v": "c"}, dependencies=["a"]),
                task("d", "echo", arguments={"v": "d"}, dependencies=["b"]),
            ),
            container("noout", "pass", output=True),
            echo(),
        ),
    ]


def retries() -> list[Json]:
    until = "import sys;sys.exit(0 if sys.argv[1] == sys.argv[2] else 1)"
    quick = {"duration": "1", "factor": "2", "cap": "3"}

    def one(name: str, strategy: Json, *args: str, code: str = until, **more: Any) -> Json:
        return workflow(
            name,
            dag(
                "main",
                task("x", "r"),
                task("y", "echo", JOIN, arguments={"v": "{{tasks.x.status}} {{tasks.x.exitCode}}"}),
            ),
            container("r", code, *args, retryStrategy=strategy, **more),
            echo(),
        )

    return [
        one("retryforever", {"retryPolicy": "Always"}, "{{retries}}", "3"),
        one("retryonerror", {"limit": "2", "retryPolicy": "OnError"}, "{{retries}}", "1"),
        one("retryonfailure", {"limit": "2", "retryPolicy": "OnFailure"}, "{{retries}}", "1"),
        one("retryerrored", {"limit": "1", "retryPolicy": "OnError"}, code="pass", output=True),
        one(
            "retryerrorpolicy", {"limit": "1", "retryPolicy": "OnFailure"}, code="pass", output=True
        ),
        one("retryzero", {"limit": "0"}, "{{retries}}", "1"),
        one(
            "retrybackoff",
            {
                "limit": "3",
                "retryPolicy": "Always",
                "backoff": quick,
                "expression": "asInt(lastRetry.exitCode) == 1",
            },
            "{{retries}}",
            "2",
        ),
        one(
            "retrymax",
            {"limit": "9", "backoff": {"duration": "1", "factor": "2", "maxDuration": "2"}},
            code="import sys,time;time.sleep(3);sys.exit(1)",
        ),
        one(
            "retrymessage",
            {"limit": "3", "expression": "retries == '0' || lastRetry.message contains 'nothing'"},
            "{{retries}}",
            "9",
        ),
        one(
            "retryduration",
            {"limit": "3", "expression": "asInt(lastRetry.duration) > 3600"},
            "{{retries}}",
            "9",
        ),
        workflow(
            "retryvalues",
            dag("main", task("a", "r", arguments={"v": "in"})),
            container(
                "r",
                "import os,sys;open(os.environ['OUT'],'w').write(' '.join(sys.argv[1:]));sys.exit(0 if sys.argv[2] == '2' else 6)",
                "{{inputs.parameters.v}}",
                "{{retries}}",
                "{{lastRetry.exitCode}}",
                "{{lastRetry.status}}",
                inputs=["v"],
                output=True,
                retryStrategy={"limit": "3"},
            ),
        ),
        workflow(
            "retrytimeout",
            dag("main", task("a", "slow")),
            container(
                "slow",
                "import sys,time;time.sleep(0 if sys.argv[1] == '1' else 60)",
                "{{retries}}",
                activeDeadlineSeconds="12",
                retryStrategy={"limit": "1", "retryPolicy": "Always"},
            ),
        ),
    ]


def pods() -> list[Json]:
    counted = "import os,sys;p='/data/%s' % sys.argv[1];open(p,'a').write('x');open(os.environ['OUT'],'w').write(open(p).read())"
    mount = [{"name": "data", "mountPath": "/data"}]
    return [
        workflow(
            "claim",
            dag("main", task("a", "w"), task("b", "w", "a")),
            container("w", counted, "{{workflow.name}}", output=True, mounts=mount),
            parameters={"claim": "storage"},
            volumes=[
                {
                    "name": "data",
                    "persistentVolumeClaim": {"claimName": "{{workflow.parameters.claim}}"},
                }
            ],
            securityContext={
                "runAsUser": 1000,
                "runAsNonRoot": True,
                "runAsGroup": 1000,
                "fsGroup": 1000,
            },
        ),
        workflow(
            "patches",
            dag("main", task("a", "p")),
            container(
                "p",
                "pass",
                podSpecPatch='{"containers":[{"name":"main","resources":{"limits":{"memory":"{{workflow.parameters.memory}}"}}}]}',
                resources={
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"memory": "32Mi"},
                },
            ),
            parameters={"memory": "128Mi", "grace": "7"},
            podSpecPatch='{"terminationGracePeriodSeconds":{{workflow.parameters.grace}}}',
        ),
        workflow(
            "signalled",
            dag("main", task("a", "s")),
            container("s", "import os,signal;os.kill(os.getpid(),signal.SIGTERM)"),
        ),
        workflow(
            "segfault",
            dag("main", task("a", "s")),
            container("s", "import os,signal;os.kill(os.getpid(),signal.SIGSEGV)"),
        ),
        workflow(
            "timeoutparameter",
            dag("main", task("a", "slow")),
            container(
                "slow", "import time;time.sleep(60)", timeout="{{workflow.parameters.limit}}"
            ),
            parameters={"limit": "15s"},
        ),
        workflow(
            "largeargument",
            dag("main", task("a", "size")),
            container(
                "size",
                "import os,sys;open(os.environ['OUT'],'w').write(str(len(sys.argv[1])))",
                "{{workflow.parameters.big}}",
                output=True,
            ),
            parameters={"big": "x" * 60_000},
        ),
        workflow(
            "depth",
            dag("main", task("a", "d1")),
            dag("d1", task("b", "d2")),
            dag(
                "d2",
                task("c", "leave", arguments={"v": "4"}),
                task("d", "leave", "c.Failed", arguments={"v": "0"}),
            ),
            leave(),
        ),
        workflow(
            "depthfails",
            dag("main", task("a", "d1"), task("n", "leave", "a.Failed", arguments={"v": "0"})),
            dag("d1", task("b", "d2")),
            dag(
                "d2",
                task("c", "leave", arguments={"v": "4"}),
                task("d", "leave", "c.Succeeded", arguments={"v": "0"}),
            ),
            leave(),
        ),
    ]


def more_cases() -> list[Json]:
    """Every workflow of this module; names are unique and start with `m-`."""
    return [*called(), *substitution(), *outputs(), *loops(), *endings(), *retries(), *pods()]
