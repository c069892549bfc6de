"""Training with several processes: a learner, and actors that step environments for it.

    protocol.py       the messages between learner and actors, and the roles of both
    observations.py   the same if the learner acts (`central.py`) and actors hold no policy
    ../transport/     gRPC, which carries the messages between machines

An actor joins, loads newer weights when there are any, and sends unrolls: T + 1 consecutive rows of one
environment, in which one episode may follow another. References: Espeholt et al. 2018, IMPALA
(arXiv:1802.01561); Espeholt et al. 2020, SEED (arXiv:1910.06591).
"""
