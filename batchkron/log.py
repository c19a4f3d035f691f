"""Loggers of what is decided and stored: silent, unless the program configures `logging`.

``batchkron.tuning``: kernels that a search has found, or that an earlier one had.
``batchkron.cache``: kernels that are compiled, found in the cache on disk, or not stored there.
``batchkron.preconditioner``: what "auto" is, and why a run takes a preconditioner or none.
"""

from __future__ import annotations

import logging

__all__ = ["logger"]

logging.getLogger("batchkron").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """Return the logger ``batchkron.<name>``."""
    return logging.getLogger(f"batchkron.{name}")
