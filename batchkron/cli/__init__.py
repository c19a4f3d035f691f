"""The command `batchkron`: make problem files, run them, show and check files."""

from batchkron.cli.main import main

__all__ = ["main"]
