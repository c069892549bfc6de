"""The trained policy of one run as ONNX: `python -m steps.export --outdir results/cartpole --run 0
--to policy.onnx`.

No step of the DAG: it writes the one file that it is asked for, and nothing into the experiment's
directory. `agents.evaluation.export` says what the graph's inputs and outputs are.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from config.ending import end
from config.errors import BadInput
from config.outdir import check_outdir
from steps.command.main import command_parser, guarded


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = command_parser("steps.export", export, in_run=True)
    parser.add_argument(
        "--to",
        default="policy.onnx",
        metavar="FILE",
        help="the file to write (default: %(default)s)",
    )
    parser.add_argument(
        "--snapshot",
        metavar="NAME",
        help="an earlier policy (parameter evaluations): best, or its environment step; default: "
        "the final one",
    )
    parsed = parser.parse_args(argv)
    return guarded("export", lambda: export(parsed))


def export(parsed: argparse.Namespace) -> int:
    """Write the final policy of one run, or a snapshot, as ONNX, including its normalisation of
    observations.

    Input: observation, as the environment gives it. Outputs: action, the most probable one; logits,
    or mean and log_std of continuous actions (TD3: neither); value. DQN: action and q. Policies with
    a memory take and give its state, too. Needs the packages onnx and onnxscript.
    """
    outdir = check_outdir(parsed.outdir, os.environ.get("STORAGE") or None)
    if not outdir.is_dir():  # before pandas is imported
        raise BadInput(f"no directory {outdir}: prepare makes it")
    from steps.results import Results

    runs = Results(outdir).runs
    if not 0 <= parsed.run < len(runs):
        raise BadInput(f"no run {parsed.run}: the experiment has the runs 0 to {len(runs) - 1}")
    written = runs[parsed.run].export(parsed.to, parsed.snapshot)
    which = "the policy" if parsed.snapshot is None else f"the snapshot {parsed.snapshot}"
    print(f"{which} of run {parsed.run} is in {written}")
    return 0


if __name__ == "__main__":
    end(main())
