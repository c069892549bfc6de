"""Readers of what trainings leave behind, ours and other programs', as entries of a comparison.

read_source.py         the table of readers, and `read`, which asks the one that recognises a path
source.py              `PATH:label=PPO:game=hopper`, and what a reader says of itself
experiments.py         experiments and studies of this project
stable_baselines3.py   runs of Stable-Baselines3 and rl-baselines3-zoo
monitor_files.py       their monitor.csv and evaluations.npz
event_files.py         TensorBoard's event files: CleanRL, Stable-Baselines3, RLlib
event_records.py       the events in such a file
exported_tables.py     CSV exports of W&B, and any other CSV
known_metrics.py       what a tag or a column means, and the run that its values make
run_names.py           games, labels and folders by their names

A new kind of source is a module with a `READER`, and a row in `read_source.READERS`.
"""

from steps.comparison.readers.read_source import READERS, read
from steps.comparison.readers.source import OPTIONS

__all__ = ["OPTIONS", "READERS", "read"]
