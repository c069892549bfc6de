"""Send an experiment's results to trackers: Weights & Biases, MLflow, or a person's own.

`sink` is the interface of a tracker, `sender` sends one run to one tracker and remembers in `journal`
what it has sent, `sources` reads what there is to send, `passes` drives the senders of a pod.
"""
