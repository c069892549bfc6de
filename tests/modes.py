"""For tests of what may not be written: root as a user whom the modes of files hold for."""

from __future__ import annotations

import ctypes
import os

CAP_DAC_OVERRIDE = 1 << 1


def respect_modes() -> None:
    """Give up CAP_DAC_OVERRIDE for good: root writes into every directory otherwise.

    Another user would not do: below a folder that only root may enter, it finds not even this
    program.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (
        ctypes.c_uint32 * 6
    )()  # effective, permitted, inheritable of the capabilities 0-31, then of 32-63
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    for index in (0, 1):
        sets[index] &= ~CAP_DAC_OVERRIDE
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
