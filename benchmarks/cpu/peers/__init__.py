"""The peers, each a file: what they offer for a shape, and how they are called at their best."""

from benchmarks.cpu.peers.asgard import Asgard
from benchmarks.cpu.peers.fastkron import FastKron
from benchmarks.cpu.peers.python import NumPy, NumPyKron, OptEinsum, SciPyBlocks

NAMES = ("NumPy", "opt_einsum", "FastKron", "numpy.kron", "ASGarD", "SciPy")


def all_peers(asgard, tuning_seconds):
    few = NumPy(), OptEinsum(), FastKron(tuning_seconds), NumPyKron(), Asgard(asgard), SciPyBlocks()
    return list(few)
