"""Handles a request before anything runs: what can be asked for, what would run, whether it can
work.
"""
