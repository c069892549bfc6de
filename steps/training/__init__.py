"""The files that a training writes while it learns: rows, event files, resource samples,
checkpoints. All topologies share them.
"""
