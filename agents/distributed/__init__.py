"""Training with several processes: a learner, and actors that play for it.

    interfaces.py   what the two say to each other, however it travels
    observations.py the same where the learner acts (`central.py`) and actors hold no policy
    ../transport/   gRPC, which carries it between machines

An actor asks to join, takes weights when there are newer ones, and hands over unrolls: T + 1 rows of
one environment, in order, episodes following one another inside. Reference: Espeholt et al. 2018,
IMPALA (arXiv:1802.01561); Espeholt et al. 2020, SEED (arXiv:1910.06591).
"""
