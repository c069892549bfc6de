"""Comparisons of algorithms over games, from directories, whoever trained them.

entries.py    what is compared: the runs of one algorithm on one game
readers/      entries from directories and files, ours and other programs'
study_entries.py  those of a study, with its labels and settings

compare.py    from entries to the result, in the order of the modules below
compared.py   the result: all that tables, figures and page show

contenders.py         labels, and which is compared with which
standings.py          each label on each game
averaging.py          averages over the runs of one entry
over_all_games.py     each label over all games
sample_efficiency.py  the same against the number of steps
against_baseline.py   differences to the baseline, and tests
grid.py               what a grid's parameters do
missing.py            what is left out, in sentences
unequal.py            what differs between entries, in sentences

stored_comparison.py   the files of a comparison
comparison_tables.py   their CSV tables
scores_for_rliable.py  scores for other programs
json_records.py        dataclasses as JSON and back
"""
