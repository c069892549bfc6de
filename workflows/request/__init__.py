"""A request to run an experiment before anything runs: what can be asked for, what would run, and whether it can work."""
