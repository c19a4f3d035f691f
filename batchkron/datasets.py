"""xarray, which is imported when it is needed."""

from __future__ import annotations

from typing import Any

from batchkron.errors import BackendUnavailableError

__all__ = ["require_xarray"]


def require_xarray(what: str) -> Any:
    """Return the module xarray.

    Parameters
    ----------
    what : str
        What needs it, for the error text.

    Returns
    -------
    module

    Raises
    ------
    BackendUnavailableError
        If it is not installed.
    """
    try:
        import xarray
    except ImportError as error:
        raise BackendUnavailableError(
            f"{what} needs xarray, which is not installed: pip install 'batchkron[xarray]'"
        ) from error
    return xarray
