"""Imported once by the fork server of the fault tests, so that its children start at once."""

import sys

import torch

import agents.load  # noqa: F401

torch.set_num_threads(1)
torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
sys.stdout.flush()
