"""The peers, each a file: what they offer for a shape, and how they are called at their best."""

from pathlib import Path

from benchmarks.cpu.contenders import Peer
from benchmarks.cpu.peers.asgard import Asgard
from benchmarks.cpu.peers.fastkron import FastKron
from benchmarks.cpu.peers.python import NumPy, NumPyKron, OptEinsum, SciPyBlocks

NAMES = ("NumPy", "opt_einsum", "FastKron", "numpy.kron", "ASGarD", "SciPy")


def all_peers(asgard: Path | None, tuning_seconds: float) -> list[Peer]:
    few = NumPy(), OptEinsum(), FastKron(tuning_seconds), NumPyKron(), Asgard(asgard), SciPyBlocks()
    return list(few)


__all__ = ["NAMES", "all_peers"]
