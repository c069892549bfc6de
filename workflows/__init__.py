"""Manifests for Argo Workflows, built with Hera, and the command that submits them to a cluster or
runs them on this machine.
"""

import sys
from pathlib import Path

# `python -m` looks in the working directory first: a `config.py` that lies there would be taken for
# ours.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
