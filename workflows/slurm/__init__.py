"""Runs the pods of the local engine as jobs of Slurm, over a directory that all nodes share.

It uses Slurm's own commands. What it has decided and seen is written into a folder of the experiment's
directory (`records`), so that an engine that was killed is started again and goes on: it executes the
workflow anew, and each pod that has ended, runs or is queued is found by its name.
"""
