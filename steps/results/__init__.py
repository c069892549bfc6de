"""The results of an experiment in Python, as pandas frames and as policies that act.

    from steps.results import Results

    results = Results("results/cartpole")
    results.training.groupby("run")["return_mean"].max()
    results.runs[0].policy().act(observation)

read_results.py   the experiment and its runs
study_results.py  a study, `Study("results/gae").standings`
frames.py         tables as typed frames
acting.py         a policy for one observation or many

Nothing here writes into the experiment's directory, so it may be read while the experiment runs.
"""

from steps.results.acting import TrainedAgent
from steps.results.read_results import Results, Run
from steps.results.study_results import Study

__all__ = ["Results", "Run", "Study", "TrainedAgent"]
