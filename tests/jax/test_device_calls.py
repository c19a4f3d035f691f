"""What XLA's calls launch, with main memory in the place of a device."""

import jax
import jax.numpy as jnp
import pytest
from device_check import run_check

from batchkron.jax import device_calls, kron_matmul


@pytest.mark.parametrize("check", ["kron_gradients", "kron_matmul", "mode_gram"])
def test_launches(check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    run_check("jax_calls", check)


def lowered(function, *shapes, symbols=False):
    """The program of a device for float64 operands."""
    given = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes]
    if symbols:
        rows = jax.export.symbolic_shape("rows")
        given[0] = jax.ShapeDtypeStruct((*rows, shapes[0][1]), jnp.float64)
    new = jax.jit(lambda *operands: function(*operands))  # of which JAX keeps no program
    return new.trace(*given).lower(lowering_platforms=("cuda",)).as_text()


def gradients(x, A, B):
    return jax.grad(lambda *all: jnp.sin(kron_matmul(all[0], all[1:])).sum(), (0, 1))(x, A, B)


SHAPES = (5, 8), (2, 3), (4, 2)


def test_programs_have_the_workspace_of_this_process_as_a_result(monkeypatch):
    asked = []

    def planned(*given):
        asked.append(given)
        return None, 100 * len(asked), 1, [], (0, 0, 0)

    monkeypatch.setattr(device_calls, "_first_device", lambda: 3)
    monkeypatch.setattr(device_calls, "planned", planned)
    text = lowered(gradients, *SHAPES)
    x, A, B = (("float64", (1, *shape)) for shape in SHAPES)
    x, y = ("float64", (1, 5, 8, 1)), ("float64", (1, 5, 6, 1))
    assert sorted(asked) == [
        ("kron_gradients", False, "0 1", 3, [x, y, A, B]),
        ("kron_matmul", False, "", 3, [x, A, B]),
    ]
    assert "@batchkron_planned" not in text
    calls = [line for line in text.splitlines() if "@batchkron_captured" in line]
    assert len(calls) == 2
    results = [line.split(" -> ")[1].strip("()").split(", ") for line in calls]
    assert {one[-1] for one in results} == {"tensor<100xui8>", "tensor<200xui8>"}
    assert sorted(map(len, results)) == [2, 3]


def test_programs_without_a_device_or_sizes_allocate_it(monkeypatch):
    text = lowered(gradients, *SHAPES)
    assert text.count("@batchkron_planned") == 2
    assert "ui8" not in text
    monkeypatch.setattr(device_calls, "_first_device", lambda: 3)
    text = lowered(lambda x, A, B: kron_matmul(x, [A, B]), *SHAPES, symbols=True)
    assert text.count("@batchkron_planned") == 1
    assert "batchkron_captured" not in text
