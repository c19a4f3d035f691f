"""FastKron's library for x86, through the handle of its Python package."""

from functools import cached_property, partial
from importlib import import_module, metadata, util

import numpy as np

from benchmarks.core.timing import Contender, absent, seconds_of
from benchmarks.cpu.contenders import Peer

FUSION, TUNE = 2, 4  # bits of FastKron's options; a new handle has FUSION only
OPTIONS = {"default": FUSION, "tuned": FUSION | TUNE, "function": FUSION}
TUNING_CALLS = 100  # a first call with TUNE takes about as long as so many without


class FastKron(Peer):
    """The default and the tuned handle, called with raw pointers; and the Python function.

    A tuned handle tries its kernels in the first call of a shape, outside of the time. Where that
    would take longer than ``tuning_seconds``, it is left out, and the report says so.
    """

    name = "FastKron"

    def __init__(self, tuning_seconds):
        self.tuning_seconds = tuning_seconds

    def missing(self):
        if util.find_spec("pyfastkron") is None:
            return "not installed"
        try:
            self.handles  # noqa: B018
        except ImportError as error:
            return str(error)
        return None

    def version(self):
        return metadata.version("pyfastkron")

    @cached_property
    def library(self):
        return import_module("pyfastkron.FastKronX86")

    @cached_property
    def handles(self):
        """The handle of each variant and dtype, made while all threads are allowed.

        Handles for two dtypes gave NaN now and then, and destroying one broke the others: each has
        one dtype and lives to the end.
        """
        make = import_module("pyfastkron.fastkronhandle").FastKronHandle
        made = {}
        for variant, options in OPTIONS.items():
            for dtype in ("float64", "float32"):
                handle = made[variant, np.dtype(dtype)] = make("x86", self.library)
                self.library.setOptions(handle.handle, options)
        return made

    def kron_matmul(self, data):
        """Both handles, and for one row the function that its users call."""
        for variant in ("default", "tuned"):
            handle = self.handles[variant, data.dtype]
            try:
                buffers = self.buffers(handle, data)
                calls = self.bound_calls(handle, data, buffers)
                default = self.bound_calls(self.handles["default", data.dtype], data, buffers)[0]
                seconds = TUNING_CALLS * seconds_of(default) if variant == "tuned" else 0.0
                if seconds > self.tuning_seconds:
                    yield absent(self.name, variant, f"tuning takes about {seconds:.0f} s")
                    continue
                calls[0]()
            except RuntimeError as error:
                yield absent(self.name, variant, str(error))
                continue
            yield Contender(self.name, variant, calls, keeps=buffers)
        if data.shape.rows == 1:
            yield self.function(data)

    def buffers(self, handle, data):
        ps, qs = (list(sizes) for sizes in zip(*data.shape.factors, strict=True))
        needed = max(handle.gekmmSizes(data.inputs[0].shape, ps, qs))
        return [b if b.size >= needed else np.ones(needed, data.dtype) for b in data.scratch]

    def bound_calls(self, handle, data, buffers):
        library, operation = self.library, self.library.Op.N
        function = library.dgemkm if data.dtype == np.float64 else library.sgemkm
        ps, qs = (list(sizes) for sizes in zip(*data.shape.factors, strict=True))
        factors = [factor.ctypes.data for factor in data.factors]
        return [
            partial(
                function,
                *(handle.handle, handle.backend, data.shape.rows, len(ps), ps, qs),
                *(x.ctypes.data, operation, factors, operation, out.ctypes.data),
                *(1.0, 0.0, 0, buffers[0].ctypes.data, buffers[1].ctypes.data),
            )
            for x, out in zip(data.inputs, data.outputs, strict=True)
        ]

    def function(self, data):
        module = import_module("pyfastkron.fastkronnumpy")
        module.__dict__["fastkronX86"] = self.handles["function", data.dtype]
        calls = [partial(module.gemkm, x, data.factors) for x in data.inputs]
        return Contender("FastKron's function", "gemkm", calls, returns=True)
