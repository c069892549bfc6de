"""What TensorBoard shows under the names that the dashboards of other libraries look for.

Stable-Baselines3: `rollout/ep_rew_mean`, `rollout/ep_len_mean`, `time/fps`, `eval/mean_reward`,
`eval/mean_ep_length`. CleanRL: `charts/episodic_return`, `charts/episodic_length`,
`charts/learning_rate`, `charts/SPS`, and the hyperparameters as a table. The speed is written by
`resources.py`. A directory of theirs beside
one of ours is then drawn in the same charts. The hyperparameters also go to the HPARAMS tab.

Sources: Stable-Baselines3 2.7, `common/on_policy_algorithm.py` and `common/callbacks.py`; CleanRL 1.0,
`cleanrl/ppo.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from config.measures import RETURN, Measure
from config.parameters import to_text
from steps.directory.tables import Cell

EVALUATED = "eval/mean_reward"
EVALUATED_LENGTH = "eval/mean_ep_length"


def of_training(
    row: Mapping[str, Cell], recent: float | None, measure: Measure
) -> dict[str, float]:
    """Tag -> value for a row of train.csv. recent: the mean return of the last 100 episodes. Nothing for
    a measure that is no return.
    """
    if measure.column != RETURN.column:
        return {}
    found: dict[str, Cell] = {
        "rollout/ep_rew_mean": recent,
        "rollout/ep_len_mean": row["length_mean"],
        "charts/episodic_return": row[measure.training_column],
        "charts/episodic_length": row["length_mean"],
        "charts/learning_rate": row.get("learning_rate"),
    }
    return {tag: float(value) for tag, value in found.items() if value is not None}


def of_hyperparameters(values: Mapping[str, object]) -> Summary:
    """Parameters, name -> value, as a text, and for the HPARAMS tab."""
    return Summary(value=[_table(values), _session(values)])


def _table(values: Mapping[str, object]) -> Summary.Value:
    lines = [f"|{name}|{to_text(value)}|" for name, value in values.items()]
    text = "\n".join(["|param|value|", "|-|-|", *lines])
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    return Summary.Value(
        tag="hyperparameters/text_summary",
        metadata=_metadata("text", TextPluginData(version=0).SerializeToString()),
        tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=shape),
    )


def _session(values: Mapping[str, object]) -> Summary.Value:
    started = SessionStartInfo()
    for name, value in values.items():
        if isinstance(value, bool):
            started.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            started.hparams[name].number_value = value
        else:
            started.hparams[name].string_value = to_text(value)
    content = HParamsPluginData(version=0, session_start_info=started).SerializeToString()
    return Summary.Value(tag="_hparams_/session_start_info", metadata=_metadata("hparams", content))


def _metadata(plugin: str, content: bytes) -> SummaryMetadata:
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return SummaryMetadata(plugin_data=data)
