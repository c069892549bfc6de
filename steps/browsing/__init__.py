"""What `steps.browse` and `steps.prune` share: the experiments, studies and searches below a folder.

places.py       finds them, without a look into their runs
life.py         whether a workflow still works on one, or has fallen silent
rows.py         what one experiment shows in a line: state, headline, progress, cost
gathered.py     the same for a study or a search, from the lines of its experiments
overview.py     all lines, read again only where files have changed
served_files.py files below a folder, with types and ranges, and nothing outside of it
server.py       the page and these files over HTTP, behind a token

The page itself is `steps.page.overview`.
"""
