"""How the train stage is laid out over pods. Whatever the layout, it takes `--outdir` and
`--run` and leaves the same files and outputs behind.

A topology is a function from the cluster's settings and the stage's inputs to the template that the
run's DAG calls as `train`: `single` is one pod; actor-learner and self-play are DAGs of several,
and everything after `train` stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from hera.workflows import DAG, Container, Parameter

from config import pipeline
from config.cluster import Cluster
from workflows.dag.pods import OUTDIR, RUN, gpu, outputs

TrainStage = Callable[[Cluster, list[Parameter]], Container | DAG]


def single(cluster: Cluster, inputs: list[Parameter]) -> Container:
    """One process trains: environments, policy and learning in one GPU pod."""
    step = pipeline.find(pipeline.TRAIN)
    return gpu(
        cluster,
        step.name,
        step.module,
        inputs=inputs,
        args=[OUTDIR, RUN],
        outputs=outputs(step),
    )


TOPOLOGIES: dict[str, TrainStage] = {"single": single}


def train_stage(topology: str, cluster: Cluster, inputs: list[Parameter]) -> Container | DAG:
    """The template named `train`: inputs `outdir` and `run`, and the outputs of the table's row."""
    return TOPOLOGIES[topology](cluster, inputs)
