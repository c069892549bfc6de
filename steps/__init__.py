"""The commands that pods run: every module here is one, `python -m steps.<name>`."""

import sys
from pathlib import Path

# `python -m` looks in the working directory first: a `config.py` that lies there would be taken for
# ours.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
