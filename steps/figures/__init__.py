"""The plots of an experiment: numbers in, figures out; one look for all of them, fit for a paper.

style.py          palette, fonts, axes, captions, and files whose bytes depend on the numbers alone
run.py            one run: training curve, losses, resources, evaluation
averaged_runs.py  all runs: averaged curve, evaluation per run, losses and resources with every run thin

Nothing here imports pyplot or torch: a figure is drawn on Agg, without a display, in a fraction of
a second.
"""
