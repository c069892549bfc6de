"""The experiment as a manifest: its DAG, the topologies of the train stage, the pods, the YAML.
Also reads from a workflow's status what its tasks are called and do.
"""
