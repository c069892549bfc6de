"""What is measured, with as many threads of numpy's own as a step gives itself: its products of matrices
would otherwise be spread over all processors, which actors share.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy is imported
