"""The mathematics of results over independent runs: arrays in, numbers out; no files, no plots.

The unit is the run: average within a run first, then over runs.

scores.py     one number from many: mean and sd, interquartile mean, profile, improvement, Wilson
intervals.py  how sure: Student's t and the bootstrap over whole runs
over_games.py aggregates, profile, improvement and curves over many games
pairs.py      two algorithms on one game: difference, tests, effect sizes
adastop.py    how many runs are enough to tell algorithms from a baseline
ranks.py      orders of algorithms, and what one setting for all games loses
curves.py     from rows of a CSV to values on a common grid of steps
elo.py        ratings of players from games between them
rule.py       what may be shown at which number of runs
"""
