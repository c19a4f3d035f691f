"""Transposes, conjugates, dtype conversions and device copies of an operator: its relatives."""

from __future__ import annotations

import copy
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from batchkron.backends import Backend, backend_on, building_on
from batchkron.operators.base import OperatorBase
from batchkron.spec.kron import check_dtype

__all__ = ["ConvertibleOperator", "relatives_lock"]

Related = TypeVar("Related", bound="ConvertibleOperator[Any]")

# One lock for all operators: relatives are rarely built. Reentrant, since building one may build
# others.
relatives_lock = threading.RLock()


class ConvertibleOperator(OperatorBase[Related]):
    """An operator with relatives: transpose, conjugate, and copies in other dtypes or devices.

    A relative is built on the first request and then kept. Concrete operators define how each is
    built. ``Related`` is the class `Operator`, to which every operator belongs; mypy does not know
    that, hence the ignored return types.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        batch_shape: tuple[int, ...] = (),
        chosen: Backend | None = None,
    ) -> None:
        super().__init__(shape, dtype, batch_shape, chosen)
        self._relatives: dict[str, Related] = {}

    def to(self, device: str) -> Related:
        """Return the operator on a device.

        An update of one of the two operators changes both.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device; vectors are CuPy arrays there.

        Returns
        -------
        Operator
            ``self`` if it is on that device already.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed; the text says what to install.
        """
        chosen = backend_on(device)
        place = chosen.current_device()
        if place == self._place:
            return self  # type: ignore[return-value]
        with relatives_lock:
            if place not in self._relatives:
                with building_on(chosen):
                    moved = self._build_on(device)
                moved._relatives[self._place] = self
                self._relatives[place] = moved
            return self._relatives[place]

    @abstractmethod
    def _recipe(self) -> tuple[Callable[..., Related], tuple[Any, ...]]:
        """Return a callable and arguments that build an equal operator, for pickling."""

    def _content(self) -> tuple[Any, ...]:
        """Return what the operator multiplies by, for checksums, without how that is done."""
        return self._recipe()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt_on, (self.device, *self._recipe())

    def __copy__(self) -> Related:
        # A shallow copy of a sum would have the same summands: an update would change both.
        return copy.deepcopy(self)  # type: ignore[return-value]

    @abstractmethod
    def _build_transpose(self) -> Related:
        """Return the transpose as a new operator."""

    @abstractmethod
    def _build_conjugate(self) -> Related:
        """Return the complex conjugate as a new operator."""

    @abstractmethod
    def _build_as(self, dtype: np.dtype[Any]) -> Related:
        """Return the operator converted to ``dtype``."""

    @abstractmethod
    def _build_on(self, device: str) -> Related:
        """Return the operator on another device; called while that is the device to build on."""

    def _relative(self, kind: str, dtype: np.dtype[Any] | None = None) -> Related:
        """Return the transpose, conjugate or converted operator, built on the first request."""
        with relatives_lock:
            return self._locked_relative(kind, dtype)

    def _locked_relative(self, kind: str, dtype: np.dtype[Any] | None) -> Related:
        if kind not in self._relatives:
            with building_on(self._backend):
                if kind == "transpose":
                    relative = self._build_transpose()
                    relative._relatives["transpose"] = self
                elif kind == "conjugate":
                    real = self.dtype.kind == "f"
                    relative = self if real else self._build_conjugate()  # type: ignore[assignment]
                else:
                    assert dtype is not None
                    relative = self._build_as(dtype)
            self._relatives[kind] = relative
        return self._relatives[kind]

    def astype(self, dtype: DTypeLike) -> Related:
        """Return the operator with its entries converted.

        Parameters
        ----------
        dtype : float32, float64, complex64 or complex128

        Returns
        -------
        Operator
            ``self`` if it has this dtype already.

        Raises
        ------
        TypeError
            For any other dtype, or complex to real.
        """
        if np.dtype(dtype) == self.dtype:
            return self  # type: ignore[return-value]
        wanted = check_dtype(dtype)
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise TypeError(f"the operator is {self.dtype}; a conversion to {wanted} drops a part")
        return self._relative(wanted.name, wanted)

    def _adjoint(self) -> Related:
        return self._relative("transpose")._relative("conjugate")  # type: ignore[no-any-return]

    def _transpose(self) -> Related:
        return self._relative("transpose")

    @property
    def T(self) -> Related:
        """The transpose, built on the first request."""
        return self._transpose()

    @property
    def H(self) -> Related:
        """The adjoint (conjugate transpose), built on the first request."""
        return self._adjoint()


def _rebuilt_on(device: str, build: Callable[..., Related], arguments: tuple[Any, ...]) -> Related:
    """Build an unpickled operator on the device of the one that was pickled."""
    with building_on(backend_on(device)):
        return build(*arguments)
