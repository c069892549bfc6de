"""The plots of an experiment: numbers in, figures out; one look for all of them, fit for a paper.

style.py          palette, fonts, axes, captions, and files whose bytes depend on the numbers alone
run.py            one run: training curve, losses, resources, evaluation
averaged_runs.py  all runs: averaged curve, evaluation per run, losses and resources with every run thin

comparison.py       all figures of a comparison, as files
curves_per_game.py  learning and evaluation curves of all labels, a panel for each game
scores_per_game.py  the score of every run, a panel for each game
over_games.py       aggregates, profiles, probability of improvement, sample efficiency
grid_effects.py     how scores depend on the parameters of a grid
labelled.py         a colour and a line style for each label, legends, panels in inches

Nothing here imports pyplot or torch: a figure is drawn on Agg, without a display, in a fraction of
a second.
"""
