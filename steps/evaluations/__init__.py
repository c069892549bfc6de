"""Evaluations of the whole training: one snapshot of its policy, and the curve of all of them."""
