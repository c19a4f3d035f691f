"""When and with what a file was written."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import platform

import h5py
import numpy as np


def writer_provenance() -> dict[str, str]:
    """Return what a file says about when and with what it was written.

    Returns dict of str to str: the time (UTC, ISO 8601) and the versions of batchkron, Python,
    NumPy, h5py and HDF5.
    """
    now = datetime.datetime.now(datetime.UTC)
    return {
        "written": now.isoformat(timespec="seconds"),
        "batchkron": batchkron_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
    }


@functools.cache
def batchkron_version() -> str:
    """Return batchkron's installed version; cached, because the metadata are read from the disk."""
    return importlib.metadata.version("batchkron")
