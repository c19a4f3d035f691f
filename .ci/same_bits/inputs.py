"""What a call is, and the fixed inputs that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.operators import on_device

REAL = ("float32", "float64")
DTYPES = (*REAL, "complex64", "complex128")


def title(function: Callable[..., Any]) -> str:
    """Return a private function's name in words."""
    return function.__name__.strip("_").replace("_", " ")


@dataclass(frozen=True)
class Call:
    """One call whose result is recorded.

    Attributes
    ----------
    name : str
        Unique; the inputs are drawn from it.
    run : callable
        Takes `Inputs`, returns what `digest.digest` understands.
    anywhere : bool
        Whether a device can do it, with the same bits in each run.
    """

    name: str
    run: Callable[[Inputs], Any]
    anywhere: bool = True


class Inputs:
    """Random arrays, the same ones for the same name, on the CPU or on a device.

    Parameters
    ----------
    name : str
        The call's; each call has numbers of its own, whatever others are run.
    device : {"cpu", "cuda"}
        Where the arrays are.
    """

    def __init__(self, name: str, device: str) -> None:
        self.device = device
        self._rng = np.random.default_rng(list(name.encode()))

    def host(self, *shape: int, dtype: str = "float64") -> Any:
        """Return normally distributed numbers as a NumPy array."""
        kind = np.dtype(dtype)
        values = self._rng.standard_normal(shape)
        if kind.kind == "c":
            values = values + 1j * self._rng.standard_normal(shape)
        return np.asarray(values).astype(kind)

    def array(self, *shape: int, dtype: str = "float64") -> Any:
        """Return normally distributed numbers on the device."""
        return self.place(self.host(*shape, dtype=dtype))

    def definite(self, n: int, dtype: str = "float64") -> Any:
        """Return a Hermitian positive definite matrix as a NumPy array, eigenvalues from 1 on."""
        half = self.host(n, n, dtype=dtype)
        return (half @ half.conj().T / n + np.eye(n)).astype(dtype)

    def regular(self, n: int, dtype: str = "float64") -> Any:
        """Return a matrix that is not symmetric and far from singular, as a NumPy array."""
        return (self.host(n, n, dtype=dtype) / (2 * n) + 2 * np.eye(n)).astype(dtype)

    def integers(self, high: int, *shape: int) -> Any:
        """Return integers from 0 to high - 1 as a NumPy array."""
        return self._rng.integers(0, high, shape)

    def place(self, thing: Any) -> Any:
        """Return an array, operator or problem on the device."""
        return (
            on_device(thing, self.device)
            if isinstance(thing, np.ndarray)
            else thing.to(self.device)
        )
