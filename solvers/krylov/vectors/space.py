"""The vectors and scalars of a Krylov method, and the passes over them, wherever these are."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import krylov_backend
from batchkron.backends.krylov_arguments import (
    ARGUMENTS,
    STATE_FIELDS,
    Field,
    Flag,
    Progress,
    Stage,
    max_sums,
    small_size,
)
from batchkron.backends.protocol import Recorder
from batchkron.operators.kronecker_sum.operator import KroneckerSum
from batchkron.spec.kron import Array

from ...products import Ranks
from .passes import Pass, Stages, Vectors

__all__ = ["Field", "Flag", "KrylovSpace", "Passes", "Progress", "Recorder", "place_of_work"]

# A pass's arguments as 64-bit words: where each begins. They are set one by one, much quicker than
# as fields of a structure.
_WORD = {name: offset // 8 for name, (_, offset) in ARGUMENTS.fields.items()}  # type: ignore[union-attr, misc]
_FIELDS = max(Field) + 1
_MAX_HISTORY_ROWS = 512  # iterations whose residuals wait to be read; chosen by hand
_MIN_HISTORY_ROWS = 64  # the same where systems are many
_HISTORY_BYTES = 8 << 20  # of residuals of all systems between these bounds; chosen by hand
_SINGLE_TRANSFER_BYTES = 32 << 10  # that a device sends as fast as a few: latency dominates


class Passes:
    """Passes over given vectors: ``run()``, or ``steps[column]()`` of those that have columns.

    Each call returns how many systems are running afterwards, -1 where that is not known without
    waiting for a device.
    """

    def __init__(
        self,
        run: Callable[[int], int],
        records: NDArray[np.uint64],
        vectors: Sequence[Array | None],
        others: Sequence[Array],
    ) -> None:
        self._records = records  # (columns, words)
        self._arrays, self._others = list(vectors), others  # whose addresses are in the records
        first, size = int(records.__array_interface__["data"][0]), ARGUMENTS.itemsize
        self.steps: list[Callable[[], int]] = [
            partial(run, first + k * size) for k in range(len(records))
        ]
        self.run = self.steps[0]

    def set(self, **values: float) -> None:
        """Change arguments: ``rtol``, ``atol``, ``max_iterations``, ``max_cycles``."""
        words = self._records.view(np.float64)
        for name, value in values.items():
            words[:, _WORD[name]] = value

    def set_count(self, count: int) -> None:
        """Say how many iterations a call does at most, of `KrylovSpace.iterations`."""
        self._records[:, _WORD["column"]] = count

    def set_vector(self, index: int, array: Array | None, address: int) -> None:
        """Change a vector; None and 0 for none."""
        self._records[:, _WORD["vectors"] + index] = address
        self._arrays[index] = array


def place_of_work(module: Any) -> tuple[Hashable, object]:
    """Return what tells where work on a module's arrays is done now, and an object to hold.

    As long as that is held, no other place is told the same. On the CPU nothing has to be held.
    """
    return krylov_backend(module).place_of_work()


class KrylovSpace:
    """The space of a Krylov method for one or many systems of N unknowns.

    Its vectors are of a shape (..., N), whose leading axes are the systems, and where arrays of
    ``module``, NumPy or CuPy, are. If they are spread over ranks, every sum is over all of these.
    Beside vectors, which a method asks for, it keeps 32 scalars and the latest estimates of the
    residual's norm for each system, and 2 m² + 9 m numbers for methods with a basis of m + 1
    vectors, where m is ``restart``.
    """

    def __init__(
        self,
        module: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        restart: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        self._backend = krylov_backend(module)
        self.ranks, self.restart = ranks, restart
        self.shape, self.dtype, self.module = shape, dtype, module
        self.systems, self.size = math.prod(shape[:-1]), shape[-1]
        systems = max(self.systems, 1)
        self.rows = min(_MAX_HISTORY_ROWS, max(_MIN_HISTORY_ROWS, _HISTORY_BYTES // (8 * systems)))
        empty, double = self._backend.empty, np.dtype(np.float64)
        self._record = empty((self.systems * (STATE_FIELDS + 1 + self.rows),), double)
        self._state, self._progress, self._history = self._parts_of(self._record)
        self._single_transfer = self._record.nbytes <= _SINGLE_TRANSFER_BYTES and module is not np
        self._seen: tuple[Any, Any, Any] | None = None
        self._read = self._backend.krylov_reader()
        base: dict[str, int] = {"n": self.size, "systems": self.systems, "rows": self.rows}
        self._kept = [self._state, self._progress, self._history]
        base["restart"] = restart
        address = self._backend.address
        if restart:
            base["small_size"] = small_size(restart, dtype)
            self._kept.append(empty((self.systems, base["small_size"]), double))
            base["small"] = address(self._kept[-1])
        parts = self._backend.krylov_parts(self.size, self.systems)
        if parts:
            base["parts"] = parts
            sums = max_sums(restart, dtype)
            self._kept.append(empty((self.systems * parts * sums,), double))
            base["partial"] = address(self._kept[-1])
            self._kept.append(empty((self.systems,), np.dtype(np.uint32)))
            self._kept[-1].fill(0)
            base["tickets"] = address(self._kept[-1])
        for name, array in zip(("state", "progress", "history"), self._kept, strict=False):
            base[name] = address(array)
        self.flags = Flag(0)
        self._vectors: dict[str, Array] = {}
        self._places: dict[int, int] = {}  # of vectors: addresses by identity
        self._base = np.zeros(ARGUMENTS.itemsize // 8, np.uint64)
        for name, value in base.items():
            self._base[_WORD[name]] = value

    def _parts_of(self, record: Any) -> tuple[Any, Any, Any]:
        """Return state (systems, fields), progress (2, systems) and history (rows, systems)."""
        systems = self.systems
        state, progress = systems * STATE_FIELDS, systems * (STATE_FIELDS + 1)
        return (
            record[:state].reshape(systems, STATE_FIELDS),
            record[state:progress].view(np.int32).reshape(2, systems),
            record[progress:].reshape(self.rows, systems),
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all vectors and scalars."""
        return sum(array.nbytes for array in (*self._kept, *self._vectors.values()))

    def recorder(self) -> Recorder | None:
        """Return what repeats work on a device with the least effort; None where there is none."""
        recorder = self._backend.repetition.recorder()
        if recorder is None or self.ranks is None or self.ranks.capturable:
            return recorder
        return None

    def vector(self, name: str) -> Array:
        """Return the vector (..., N) of a name, uninitialised at first."""
        return self._named(name, self.shape)

    def basis(self, name: str, slots: int) -> Array:
        """Return the vectors (slots, ..., N) of a name, likewise."""
        return self._named(name, (slots, *self.shape))

    def _named(self, name: str, shape: tuple[int, ...]) -> Array:
        if name not in self._vectors:
            array = self._vectors[name] = self._backend.krylov_vectors(shape, self.dtype)
            self._places[id(array)] = self._backend.address(array)
        return self._vectors[name]

    def passes(
        self, passes: Sequence[Pass[Vectors]], vectors: Vectors, *, columns: int = 1
    ) -> Passes:
        """Return passes of one method over its vectors, with the options ``flags``.

        A vector that they do not use may be None. ``columns`` are the steps of a cycle, each of
        which has a call of its own.
        """
        chosen = self._backend.krylov_passes(
            tuple([each.name for each in passes]),
            self.dtype,
            self.size,
            self.systems,
            self.restart,
            self.ranks,
        )
        return self._bound(chosen.run, vectors, columns)

    def _bound(
        self, run: Callable[[int], int], vectors: Sequence[Array | None], columns: int = 1
    ) -> Passes:
        """Return what a backend runs with the arguments that it takes."""
        records = np.empty((columns, len(self._base)), np.uint64)
        records[:] = self._base
        first = _WORD["vectors"]
        address = self.address
        records[:, first : first + len(vectors)] = [0 if v is None else address(v) for v in vectors]
        records[:, _WORD["flags"]] = int(self.flags)
        if columns > 1:
            records[:, _WORD["column"]] = np.arange(columns)
        return Passes(run, records, vectors, self._kept)

    def iterations(self, operator: object, stages: Stages, kept: Sequence[Array]) -> Passes | None:
        """Return whole iterations, as many as `Passes.set_count` says, in one call.

        ``stages`` are what an iteration does in turn, passes with the method's vectors, and
        products; the vectors in ``kept`` go on from iteration to iteration, others are scratch.
        None where there are no such iterations: there are for Kronecker sums of many small
        systems, on a device.
        """
        if not isinstance(operator, KroneckerSum) or operator.dtype != self.dtype:
            return None
        plan = operator.system_plan
        if plan is None or operator.batch_shape != self.shape[:-1]:
            return None
        vectors = {id(vector): vector for vector in kept}
        for _, used in stages:
            vectors.update((id(vector), vector) for vector in used)
        places = {key: k for k, key in enumerate(vectors)}
        listed = tuple(
            Stage(each.name, tuple(places[id(vector)] for vector in used)) for each, used in stages
        )
        chosen = self._backend.krylov_iterations(plan, listed, len(kept), len(vectors))
        return None if chosen is None else self._bound(chosen.run, list(kept))

    def address(self, array: Array) -> int:
        """Return where an array lies, for `Passes.set_vector`."""
        known = self._places.get(id(array))
        return self._backend.address(array) if known is None else known

    def running(self, known: int = -1) -> int:
        """Return how many systems are running: what a pass returned, if that is known."""
        return known if known >= 0 else int((self.progress()[0] == Progress.RUNNING).sum())

    def spoil(self, which: NDArray[np.intp]) -> None:
        """End systems whose residual is not finite, which no pass has seen."""
        if which.size:
            places = self.module.asarray(which)
            self._progress[0, places] = Progress.NOT_FINITE_AT_END
            self._state[places, Field.RESIDUAL] = math.nan
            self.changed()

    def changed(self) -> None:
        """Forget what was seen of a device: passes have been launched since."""
        self._seen = None

    def progress(self) -> NDArray[np.int32]:
        """Return `Progress` and iterations of each system, (2, systems), once they are there."""
        return self._host(1, ...)

    def field(self, field: Field) -> NDArray[np.float64]:
        """Return a scalar of each system, (systems,), once it is there."""
        return self._host(0, (slice(None), field))

    def scalars(self) -> NDArray[np.float64]:
        """Return those of `Field` of all systems, (systems, fields), once they are there."""
        if self._single_transfer or self.module is np:
            return self._host(0, (slice(None), slice(_FIELDS)))
        together = self.module.ascontiguousarray(self._state[:, :_FIELDS])
        return self._read(together).copy()

    def history(self, rows: int) -> NDArray[np.float64]:
        """Return the first rows of the history, (rows, systems), valid until the next call."""
        if self._single_transfer:
            return self._host(2, slice(rows))
        return self._read(self._history[:rows])

    def _host(self, part: int, index: Any) -> NDArray[Any]:
        """Return some of the state, progress or history; of a device all at once, if few."""
        if self._single_transfer:
            if self._seen is None:
                self._seen = self._parts_of(self.module.asnumpy(self._record))
            return self._seen[part][index].copy()  # type: ignore[no-any-return]
        array = (self._state, self._progress, self._history)[part][index]
        return array.copy() if self.module is np else self.module.asnumpy(array)  # type: ignore[no-any-return]
