"""Learning: algorithms, networks, environments, evaluation, search. No paths, no argparse, no Argo.

torch is told to use huge pages before its first allocation. Measured three times on a noisy Linux
machine with `transparent_hugepage` at madvise, a pass over a minibatch of images took 147, 214 and
174 ms without them, 118, 145 and 168 ms with them. Two epochs of Breakout end with the same weights;
memory rises from 806 to 835 MiB.
"""

import os

from agents import former_names

former_names.install()
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
