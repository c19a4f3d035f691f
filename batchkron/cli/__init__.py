"""The command `batchkron`: make problem files, run them, look at files and check them."""

from batchkron.cli.main import main

__all__ = ["main"]
