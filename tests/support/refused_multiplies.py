"""Multiplies on a device that are refused, after one that is not."""

from functools import partial

import numpy as np
import pytest

import batchkron as bk


def refused_multiplies(cupy, rng):
    """What does not fit is refused after what does; return the call that does, and its x."""
    memory = cupy.asarray(rng.standard_normal(100))
    factors = [memory[:4].reshape(2, 2), memory[4:8].reshape(2, 2)]
    x, y, out = memory[8:12], memory[12:16], cupy.empty(4)
    call = partial(bk.gemkm, x, factors)
    call(out=out)
    call(beta=1, y=y, out=out)
    for options, error, text in [
        ({"out": memory[3:7]}, ValueError, "out overlaps an input"),
        ({"out": memory[7:11]}, ValueError, "out overlaps an input"),
        ({"out": memory[11:15]}, ValueError, "out overlaps an input"),
        ({"out": memory[13:17], "y": y, "beta": 1}, ValueError, "out overlaps an input"),
        ({"out": cupy.empty(4, "f4")}, TypeError, "out has dtype float32"),
        ({"out": cupy.empty((1, 4))}, ValueError, "out has shape"),
        ({"out": np.empty(4)}, TypeError, "out is a ndarray; expected a CuPy array"),
        ({"beta": 1}, ValueError, "beta is 1, but y is missing"),
        ({"beta": 1, "y": cupy.empty(5)}, ValueError, "y has shape"),
        ({"precision": "tf16"}, ValueError, "precision is 'tf16'"),
        ({"precision": ["tf32"]}, ValueError, "precision is"),
        ({"alpha": "1"}, TypeError, "alpha is '1'"),
        ({"transpose": "no"}, TypeError, "transpose is"),
    ]:
        with pytest.raises(error, match=text):
            call(**options)
    with pytest.raises(ValueError, match="x has shape"):
        bk.gemkm(memory[:5], factors)
    with pytest.raises(ValueError, match="factors is empty"):
        bk.gemkm(x, [])
    with pytest.raises(TypeError, match="x is an array on the CPU"):
        bk.gemkm(x.get(), factors)
    return partial(call, out=out), x
