"""The terms that a method treats implicitly, where they have fields: they follow given states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend_on
from batchkron.operators import SparseGridOperator

from ..sources import Sources
from .gains import GainsOfState
from .terms import FieldTerms

__all__ = ["ImplicitFields"]


class ImplicitFields:
    """The terms that a method treats implicitly, with the fields of a state that is given.

    ``terms``: the terms, those without fields included.
    ``sources``: their sources.
    ``gains``: what is added to the sources, for the state.
    ``like`` (ndarray, shape (N,), float64): a state.
    ``is_whole``: whether these are all of a problem's terms and sources.

    On a device the fields of a state are a CUDA graph after a few states, unless something in
    them needs the host.
    """

    def __init__(
        self,
        terms: FieldTerms,
        sources: Sources,
        gains: GainsOfState,
        like: NDArray[np.float64],
        *,
        is_whole: bool,
    ) -> None:
        self._terms, self._sources, self.is_whole = terms, sources, is_whole
        self._gains = gains
        if self._gains:
            self._gain = array_module(like).zeros_like(like)
        self._repeated: Callable[..., None] | None = None
        if terms.is_repeatable and array_module(like) is not np:
            self._repeated = backend_on("cuda").repetition.repeated(
                lambda u, _: terms.follow(0.0, u), (like.size, 0), like.dtype
            )

    @property
    def operator(self) -> SparseGridOperator:
        """The operator for the state that was last given."""
        return self._terms.operator

    def follow(self, t: float, u: NDArray[np.float64]) -> None:
        """Compute the fields of a state, and with them the operator."""
        if self._repeated is None or not self._terms.is_repeatable:
            self._terms.follow(t, u)
        else:  # on a device the time is in no error text
            self._repeated(u)
            self._terms.note_replay()
        if self._gains:
            self._gains.write(t, u, self._gain)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with the sources at a time, and the gains of the state."""
        self._sources.evaluate(t, out)
        if self._gains:
            out += self._gain
