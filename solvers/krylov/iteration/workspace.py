"""The workspace of a Krylov method: vectors, passes and recordings, kept from solve to solve."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from batchkron.array_kinds import native
from batchkron.arrays import array_module, native_dtype
from batchkron.operators import Operator, on_device

from ...products import Vector, working_dtype
from ..systems.layouts import check_layout
from ..systems.system import LinearSystem, check_count
from ..vectors.passes import (
    OperatorExtent,
    Pass,
    ScaleResidual,
    SharedVectors,
    StartExtent,
    StartNorms,
    TrueResidual,
    Vectors,
)
from ..vectors.ranks import ranks_of
from ..vectors.space import Flag, KrylovSpace, Passes, Recorder

# Solves whose iterations are remembered: as many as an IMEX method has stages. One iteration too
# many costs less than one too few, after which a device has to be waited for twice.
_REMEMBERED = 4
# Addresses of right-hand sides for which that is done. Stages that are iterated have two.
_MAX_ADDRESSES = 2
_B = SharedVectors._fields.index("b")


class MethodWorkspace(ABC):
    """What a method keeps from solve to solve; `KrylovMethod` says what its parameters are."""

    def __init__(
        self,
        size: Any,
        dtype: Any = None,
        *,
        like: Any = None,
        M: Any = None,
        batched: str | None = None,
    ) -> None:
        check_layout(batched)
        self.batched = batched
        self._A: Any = None
        self._M = M
        if hasattr(size, "shape") and not np.isscalar(size):
            self._A, size = size, size.shape[-1]
            own = native(self._A, "A")
            dtype = working_dtype(own) if dtype is None else dtype
            if like is None and isinstance(self._A, Operator):
                like = on_device(np.empty(0), self._A.device)
            like = own if like is None else like
        self.size = check_count("size", size, minimum=0)
        self._ranks = ranks_of(self._A)
        self._unknowns = self._over_ranks(self.size)
        self.dtype = native_dtype(np.dtype(np.float64 if dtype is None else dtype))
        if self.dtype.char not in "fdFD":
            raise TypeError(
                f"dtype is {self.dtype}; expected float32, float64, complex64 or complex128."
            )
        self._arrays = array_module(native(like, "like"))
        self._space: KrylovSpace | None = None
        self._vectors: dict[str, Vector] = {}
        self._set_up: tuple[Any, ...] = ()
        self._recorder: Recorder | None = None
        self._recorded: tuple[Callable[[], Any], ...] = ()  # the operators of the recordings
        self._iterations: Passes | None = None
        self._costs: dict[Any, tuple[int, int]] = {}
        self._measured = False  # whether the unit of products with A is known
        self._under_way = threading.Lock()
        self._done = 0  # iterations of the solve under way
        self._taken = 0  # iterations that the last solve took
        # those of the last solves, by the addresses of their right-hand sides
        self._taken_at: dict[int, deque[int]] = {}
        self._expected_iterations = 0  # that the solve under way is taken to need

    # What a method says of its vectors and passes.

    _basis_size = 0  # m, of methods with a basis of m + 1 vectors
    _measures = False  # whether the first product with A says in what unit they are taken

    def _flags(self, preconditioned: bool) -> Flag:
        """Return the options of its passes."""
        return Flag.PRECONDITIONED if preconditioned else Flag(0)

    @abstractmethod
    def _allocate(self, preconditioned: bool) -> SharedVectors:
        """Make the vectors and passes.

        Returns
        -------
        SharedVectors
            x; r, which the true residual is written to when no system is running; w, the vector of
            products with A, where the first one says in what unit they are taken.
        """

    def _whole_iterations(self, A: Any) -> Passes | None:
        """Return iterations that the device does in one launch, None where there are none."""
        return None

    @property
    def nbytes(self) -> int:
        """The bytes of the workspace."""
        return 0 if self._space is None else self._space.nbytes

    def _recent(self, address: int) -> deque[int]:
        """Return the iterations of the last solves of a right-hand side at an address."""
        recent = self._taken_at.get(address)
        if recent is None:
            while len(self._taken_at) >= _MAX_ADDRESSES:
                self._taken_at.pop(next(iter(self._taken_at)))
            recent = self._taken_at[address] = deque(maxlen=_REMEMBERED)
        return recent

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        self._point_at(None, 0)

    # Vectors and passes, made when they are first needed.

    def _workspace(self, b: Vector, preconditioned: bool) -> KrylovSpace:
        """Return the workspace for vectors like b, made when first needed."""
        if b.shape[-1] != self.size:
            raise ValueError(
                f"b has {b.shape[-1]} elements; expected {self.size}, as the workspace has. Make "
                f"another {type(self).__name__} for another size."
            )
        wanted = (b.shape, preconditioned)
        if self._space is None or self._space.shape != b.shape:
            self._space = KrylovSpace(
                self._arrays, b.shape, self.dtype, self._basis_size, self._ranks
            )
            self._vectors.clear()
            self._set_up = ()
        if self._set_up != wanted:
            self._flag = int(self._flags(preconditioned))
            at = self._allocate(preconditioned)
            assert at.r is not None
            assert at.x is not None
            self._residual, self._solution = at.r, at.x
            given = SharedVectors(r=at.r, x=at.x)
            self._start = self._passes((StartExtent, StartNorms), given)
            self._scale = self._passes((ScaleResidual,), SharedVectors(r=at.r))
            if self._measures:
                self._extent = self._passes((OperatorExtent,), SharedVectors(w=at.w))
            self._decide = self._passes((TrueResidual,), given)
            self._set_up, self._recorded = wanted, ()
        return self._space

    def _vector(self, name: str) -> Vector:
        """Return a vector of the workspace, which is kept as long as b has the same shape."""
        assert self._space is not None
        if name not in self._vectors:
            self._vectors[name] = self._space.vector()
        return self._vectors[name]

    def _basis_of(self, name: str, slots: int) -> Vector:
        """Return vectors (slots, ..., N) of the workspace, likewise."""
        assert self._space is not None
        if name not in self._vectors:
            self._vectors[name] = self._space.basis(slots)
        return self._vectors[name]

    def _passes(self, passes: tuple[Pass[Vectors], ...], at: Vectors, columns: int = 1) -> Passes:
        """Return passes over vectors, which ``run()`` does one after another."""
        assert self._space is not None
        return self._space.passes(passes, at, columns=columns, flags=self._flag)

    def _point_at(self, b: Vector | None, address: int) -> None:
        """Let the passes that read b read these right-hand sides."""
        for passes in (self._start, self._decide):
            passes.set_vector(_B, b, address)

    def _measure(self) -> None:
        """After the first product with A: see in what unit products are taken."""
        self._extent.run()
        self._measured = True

    def _prepare_recorder(self, space: KrylovSpace, system: LinearSystem) -> None:
        """Begin new recordings where the passes or operators are others than the last time."""
        if not system.recordable:
            self._recorded, self._recorder, self._iterations = (), None, None
        elif not self._recorded or any(
            known() is not operator
            for known, operator in zip(self._recorded, system.operators, strict=True)
        ):
            self._recorded = tuple(map(_reference, system.operators))
            self._recorder, self._costs = space.recorder(), {}
            A, M = system.operators
            self._iterations = None if M is not None else self._whole_iterations(A)

    def _over_ranks(self, count: int) -> int:
        """Return the sum of a number over the ranks."""
        if self._ranks is None:
            return count
        sums = np.array([count], np.int64)
        self._ranks.allreduce(sums)
        return int(sums[0])

    def _check_ranks(self, A: Any) -> None:
        """Raise ValueError if A's vectors are on other ranks than the workspace's."""
        ranks = ranks_of(A)
        here, there = (1 if each is None else each.size for each in (self._ranks, ranks))
        if here != there:
            raise ValueError(
                f"A's vectors are spread over {there} ranks, those of the workspace over {here}; "
                f"make the object with the operator, {type(self).__name__}(A)."
            )

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Refuse a solve while another one has the workspace."""
        if not self._under_way.acquire(blocking=False):
            raise RuntimeError(
                f"this {type(self).__name__} is solving already, and has one workspace; make "
                "another for each thread, and for solves within a product."
            )
        try:
            yield
        finally:
            self._under_way.release()


def _reference(operator: Any) -> Callable[[], Any]:
    """Return what returns the operator, as long as others keep it."""
    return (lambda: None) if operator is None else weakref.ref(operator)
