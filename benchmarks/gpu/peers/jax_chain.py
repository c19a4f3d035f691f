"""A chain of JAX's multiplies, compiled by XLA as one function. JAX need not be installed.

XLA runs on streams of its own, so that its calls cannot be captured in a graph of ours.
"""

import importlib
import os
from functools import cache
from importlib import util


@cache
def _jax():
    """JAX in full precision, which takes memory as it needs it and not most of it at first."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    return jax


@cache
def missing():
    if util.find_spec("jax") is None:
        return "not measured: JAX is not installed"
    try:
        _jax().devices("gpu")
    except (ImportError, RuntimeError) as error:
        return f"not measured: this JAX sees no device: {error}"[:200]
    return ""


class Chain:
    """The chain on inputs in turn; ``result`` is the last one. Factors are A_k (outputs, inputs).

    Each multiply puts its mode behind all others.
    """

    def __init__(self, shape, factors, inputs):
        jax = _jax()
        placed = jax.dlpack.from_dlpack  # on the same memory
        self._factors, self._inputs = list(map(placed, factors)), list(map(placed, inputs))
        self.result = None

        def chain(x, factors):
            z = x.reshape(shape.rows, *(p for p, _ in shape.factors))
            for factor in factors:
                z = jax.numpy.tensordot(z, factor, axes=((1,), (1,)))
            return z.reshape(shape.rows, -1)

        self._call = jax.jit(chain)

    def run(self):
        for x in self._inputs:
            self.result = self._call(x, self._factors)

    def wait(self):
        self.result.block_until_ready()
