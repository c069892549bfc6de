"""gRPC between a learner and its actors: `service` is the learner's end, `client` the actor's.

`learner.proto` defines the messages; `messages` and `tensors` check what arrives.
"""

from agents.transport import calls

calls.settle()
