"""The gRPC service between a learner and its actors: `server` is the learner's side, `client` the
actor's. `learner.proto` says what travels; what arrives is checked in `messages` and `tensors`.
"""

from agents.transport import native

native.settle()
