"""The experiment as a manifest: its DAG, the train stage's topologies, the pods, the YAML, and what its tasks are called and do."""
