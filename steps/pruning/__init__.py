"""What `steps.prune` is made of.

rules.py      which experiments are kept, and why: `last=5`, `days=30`, `best=3`
deleting.py   deletes the state of an experiment, or all of it, so that a kill in the middle does no harm
"""
