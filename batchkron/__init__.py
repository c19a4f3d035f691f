"""Batches of Kronecker products of small matrices: multiply, solve, step in time."""

from batchkron.errors import BackendUnavailableError, ProblemFileError

__version__ = "0.1.0"

__all__ = ["BackendUnavailableError", "ProblemFileError", "__version__"]
