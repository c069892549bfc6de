"""Learning: networks, PPO, environments, evaluation and film. No paths, no argparse, no Argo.

torch is asked for huge pages before its first allocation: a pass over a minibatch of images takes about a tenth less (measured on
Linux with `transparent_hugepage` at its default, madvise). Memory comes out the same, and so does every number.
"""

import os

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
