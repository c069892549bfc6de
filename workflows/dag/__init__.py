"""The experiment as a manifest: its DAG, the train stage's topologies, the pods, the YAML.

And, read from a workflow's status, what its tasks are called and do.
"""
