"""Studies: many experiments that are compared, described by one file.

study_file.py      the file as a whole: `read_study`, `Study`
axes.py            algorithms, variants, games, the grid, and parameters of all
given_settings.py  parameters as the file gives them
labels.py          labels for figures, and directories' names made from them
cells.py           the experiments: names, exclusions, checks
compared.py        baseline, scores and number of runs
search.py          a search: what is proposed, judged and trained again
search_section.py  its section of the file
workflow_parameters.py  the parameters of the workflow
"""

from config.study.cells import Cell
from config.study.compared import AdaptiveRuns, Baseline
from config.study.search import Search
from config.study.study_file import Study, read_study, read_text, with_other_values

__all__ = [
    "AdaptiveRuns",
    "Baseline",
    "Cell",
    "Search",
    "Study",
    "read_study",
    "read_text",
    "with_other_values",
]
