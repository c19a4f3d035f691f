"""Prepared launches: kernels with their grids and arguments, called with a few addresses only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from batchkron.backends.cpu.native import DeviceCall, DeviceLaunch, DeviceSequence
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    can_launch_early,
    cupy,
    current_device,
    device_errors,
    driver_launch,
    runtime,
)
from batchkron.spec.kron import Array

ADDRESS_BYTES = 8
"""Bytes of an address in a kernel's arguments."""
_MAX_CACHED_CALLS = 64  # largest number of entries of a `BoundedCache`; chosen by hand

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A cache of prepared launches, such as an operator's by shape; it is emptied when full.

    ``make(*key)``, or ``make(key)`` if the key is no tuple, returns what is asked for and missing.
    """

    def __init__(
        self, limit: int = _MAX_CACHED_CALLS, make: Callable[..., Value] | None = None
    ) -> None:
        super().__init__()
        self._limit, self._make = limit, make

    def __missing__(self, key: Key) -> Value:
        if self._make is None:
            raise KeyError(key)
        value = self[key] = self._make(*key) if isinstance(key, tuple) else self._make(key)
        return value

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._limit:
            self.clear()
        super().__setitem__(key, value)


class Launch(DeviceLaunch):
    """A kernel with its grid and the arguments that are the same in every call.

    A call passes the stream from `ready_stream`, the addresses with which the arguments begin, and
    the bytes of the scalars with which they end, if there are any. Threads may share a launch. If
    device and driver support it, the kernel is launched before those ahead of it on the stream have
    ended, and waits on the device (csrc/cuda/common/launch_order.cuh).
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int] | tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Array,
        addresses: int,
        scalars: str = "",
    ) -> None:
        """Take a record of all arguments, how many addresses, and the first scalar's name."""
        content = arguments.tobytes()
        end = len(content)
        if scalars:
            end = arguments.dtype.fields[scalars][1]  # type: ignore[index]
        self._kernel = kernel  # keeps its module loaded
        early = can_launch_early(current_device())
        x, y, z = (*grid, 1)[:3]
        sizes = x, y, z, threads, shared_bytes
        super().__init__(*driver_launch(), kernel.ptr, *sizes, early, content, addresses, end)


class Place(NamedTuple):
    """One of the addresses that a call of a `LaunchSequence` passes, and bytes to add to it."""

    number: int
    offset: int = 0

    def plus(self, size: int) -> Place:
        """Return the place so many bytes behind."""
        return Place(self.number, self.offset + size)


class LaunchStep(NamedTuple):
    """A launch, and the addresses that it takes, by their bytes in its arguments."""

    launch: DeviceCall
    places: Mapping[int, Place]

    @classmethod
    def of(cls, launch: DeviceCall, addresses: Sequence[Place]) -> LaunchStep:
        """Return a step whose addresses are the first of its arguments."""
        return cls(launch, {ADDRESS_BYTES * k: place for k, place in enumerate(addresses)})


class LaunchSequence(DeviceSequence):
    """Launches one after the other, with addresses that they share.

    A call passes the stream from `ready_stream`, all addresses, and the bytes of the last launch's
    scalars. Arguments that no place says and no scalar replaces are those of each launch. Threads
    may share a sequence.
    """

    def __init__(self, steps: Sequence[LaunchStep], addresses: int) -> None:
        """Take the steps, and how many addresses a call passes."""
        launches = [step.launch for step in steps]
        places = [[(at, *place) for at, place in step.places.items()] for step in steps]
        super().__init__(launches, places, addresses)


class ScalarArguments:
    """The bytes of the scalars at the end of a kernel's arguments, cached for alpha = 1."""

    def __init__(self, pack: Callable[[complex, bool], bytes]) -> None:
        self._pack = pack
        self._of_one = {accumulate: pack(1, accumulate) for accumulate in (False, True)}

    def __call__(self, alpha: complex, accumulate: bool) -> bytes:
        """Return the bytes for y = alpha A x, or y += alpha A x if ``accumulate``."""
        return self._of_one[accumulate] if alpha == 1 else self._pack(alpha, accumulate)


def batch_scalars(dtype: np.dtype[Any]) -> ScalarArguments:
    """Return the scalars of batch-list kernels: int64 ``accumulate``, then alpha in ``dtype``."""
    return ScalarArguments(
        lambda alpha, accumulate: (
            np.int64(accumulate).tobytes() + np.array([alpha], dtype).tobytes()
        )
    )


class FastPath:
    """A linear operator with a fast path for arrays that need neither copy nor conversion.

    The fast path only checks devices and addresses, and launches. Whether it applies, and what it
    launches, is cached by shapes, strides and dtypes of a call.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._known: BoundedCache[
            tuple[Any, ...], tuple[Callable[[int, int], None] | None, int, int]
        ] = BoundedCache()

    @abstractmethod
    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        """Return a function from vectors with x's layout to ``out``'s, None if they do not fit.

        Both arrays are contiguous and of one dtype; the function takes their addresses.
        """

    def apply(self, x: Any, out: Any) -> bool:
        """Write A x to ``out`` by the fast path, or return False if it does not apply."""
        if type(x) is not cupy.ndarray or type(out) is not cupy.ndarray:
            return False
        try:
            source, target, device = x.data, out.data, self._device
            if not source.device_id == target.device_id == device == runtime.getDevice():
                return False
            key = x.shape, x.strides, x.dtype, out.shape, out.strides, out.dtype
            known = self._known.get(key)
            if known is None:
                known = self._learn(key, x, out)
            run, x_bytes, out_bytes = known
            if run is None:
                return False
            begin, out_begin = source.ptr, target.ptr
            if begin < out_begin + out_bytes and out_begin < begin + x_bytes:
                return False
            run(begin, out_begin)
        except Exception:
            with device_errors():
                raise
        return True

    def _learn(self, key: tuple[Any, ...], x: DeviceArray, out: DeviceArray) -> tuple[Any, ...]:
        plain = x.flags.c_contiguous and out.flags.c_contiguous and x.size and out.size
        run = self._fast_path(x, out) if plain and x.dtype == out.dtype else None
        known = self._known[key] = run, x.nbytes, out.nbytes
        return known
