"""The page that shows an experiment: one HTML file that needs no server and no network.

facts.py      what the directory says, as plain values: runs, tasks, parameters, durations
verdict.py    whether the experiment is complete, and what is missing; what the headline may claim
cost.py       what the experiment has cost, in words
media.py      plots as data URIs that follow a dark page, films as relative links
render.py     facts -> HTML, with everything escaped and a policy that forbids the network

comparison.py is the page of a comparison, with a template of its own and the same style and policy.
"""
