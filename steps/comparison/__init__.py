"""Comparisons of algorithms over games, from directories, whoever trained them.

entries.py    what is compared: the runs of one algorithm on one game
readers/      entries from directories and files, ours and other programs'
"""
