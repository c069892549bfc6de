"""Studies: many experiments that are compared, described by one file.

axes.py            algorithms, variants, games, the grid, and parameters of all
given_settings.py  parameters as the file gives them
labels.py          labels for figures, and directories' names made from them
"""
