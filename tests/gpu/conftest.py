"""The device of these tests, by the environment's `GPU_TESTS_DEVICE`: cuda, unless it says `cpu` or
`pretended` (`tests.gpu.pretended`).
"""

from __future__ import annotations

import os

import pytest

ASKED = os.environ.get("GPU_TESTS_DEVICE", "cuda")
if ASKED == "pretended":
    from tests.gpu.pretended import install

    install()

import torch  # noqa: E402 - after the device is there


@pytest.fixture(scope="session")
def device() -> str:
    """As trainers take it."""
    if ASKED == "cuda" and not torch.cuda.is_available():
        pytest.skip("no usable GPU; GPU_TESTS_DEVICE=cpu or =pretended runs them without one")
    if ASKED == "cuda":
        # Sums of products are rounded to 10 bits otherwise, in convolutions.
        torch.backends.cudnn.allow_tf32 = False
    return "pretended:0" if ASKED == "pretended" else ASKED
