"""What a training leaves behind while it learns: rows, event files, resource samples, checkpoints.
Shared by all topologies.
"""
