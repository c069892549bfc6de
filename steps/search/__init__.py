"""Searches: trials that Optuna proposes, and what is known of them.

journal.py     Optuna's journal: the trials, what they reached, how they ended
samplers.py    the ranges and the sampler of a search in Optuna's words
halving.py     which trial goes on at a rung
objective.py   what a trial is worth, at a rung and at its end
ended.py       how a trial has ended, told to the journal
findings.py    everything that the page shows
"""
