"""What XLA's calls launch, with main memory in the place of a device."""

import itertools
from types import SimpleNamespace

import jax
import jax.export
import jax.numpy as jnp
import pytest
from device_check import run_check

from batchkron.backends.cuda.kernel_family import forget_plans
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

    def planned(name, *given):
        asked.append((name, *given))
        return None, (100 if name == "kron_matmul" else 200) + given[2], 1, [], (0, 0, 0)

    monkeypatch.setattr(device_calls, "_devices_here", lambda: [3, 1])
    monkeypatch.setattr(device_calls, "planned", planned)
    monkeypatch.setattr(device_calls, "_present", "7")
    text = lowered(gradients, *SHAPES)
    x, A, B = (("float64", (1, *shape)) for shape in SHAPES)
    x, y = ("float64", (1, 5, 8, 1)), ("float64", (1, 5, 6, 1))
    assert sorted(asked) == [
        ("kron_gradients", False, "0 1", 1, [x, y, A, B], "7"),
        ("kron_gradients", False, "0 1", 3, [x, y, A, B], "7"),
        ("kron_matmul", False, "", 1, [x, A, B], "7"),
        ("kron_matmul", False, "", 3, [x, A, B], "7"),
    ]
    assert "@batchkron_planned" not in text
    calls = [line for line in text.splitlines() if "@batchkron_captured" in line]
    assert len(calls) == 2
    results = [line.split(" -> ")[1].strip("()").split(", ") for line in calls]
    assert {one[-1] for one in results} == {"tensor<103xui8>", "tensor<203xui8>"}
    assert all('plans = "7"' in one for one in calls)
    assert sorted(map(len, results)) == [2, 3]


def test_programs_without_a_device_or_sizes_allocate_it(monkeypatch):
    text = lowered(gradients, *SHAPES)
    assert text.count("@batchkron_planned") == 2
    assert "ui8" not in text
    monkeypatch.setattr(device_calls, "_devices_here", lambda: [3])
    text = lowered(lambda x, A, B: kron_matmul(x, [A, B]), *SHAPES, symbols=True)
    assert text.count("@batchkron_planned") == 1
    assert "batchkron_captured" not in text


def test_exported_functions_allocate_it(monkeypatch):
    """They may run on any device."""
    monkeypatch.setattr(device_calls, "_devices_here", lambda: [3])
    check = jax.export.DisabledSafetyCheck.custom_call("batchkron_planned")
    given = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in SHAPES]
    export = jax.export.export(jax.jit(gradients), platforms=["cuda"], disabled_checks=[check])
    text = export(*given).mlir_module()
    assert text.count("@batchkron_planned") == 2
    assert "ui8" not in text


def test_equal_devices_keep_their_plans(monkeypatch):
    """Also one that runs a compiled function only after plans have become larger."""
    bytes_now = [1000]
    monkeypatch.setattr(device_calls, "_planned", lambda name, call: (None, bytes_now[0]))
    devices = [SimpleNamespace(local_hardware_id=number) for number in (0, 1)]
    monkeypatch.setattr(jax, "local_devices", lambda backend: devices)
    monkeypatch.setattr(device_calls, "backend_on", lambda backend: None)
    given = "kron_matmul", False, ""
    operands = [("float32", (1, 2, 6, 1)), ("float32", (1, 6, 6))]
    workspace = device_calls.workspace_here(*given, operands)
    assert workspace.bytes == 1000
    bytes_now[0] = 4000
    forget_plans()
    for number in (0, 1):
        assert device_calls.planned(*given, number, operands, workspace.plans)[1] == 1000
    device_calls._kept.cache_clear()


def test_compiled_functions_keep_their_plans(monkeypatch):
    """Of a call with the same plans, one that suffices for its workspace."""
    counts = itertools.count()
    monkeypatch.setattr(device_calls, "_planned", lambda name, call: next(counts))
    given = "mode_gram", False, "", 0, [("float32", (1, 5, 2, 3)), ("float32", (1, 5, 7, 3))]
    before = device_calls._present
    first = device_calls.planned(*given, before)
    forget_plans()
    assert device_calls._present != before
    assert device_calls.planned(*given, before) == first
    later = {device_calls.planned(*given, device_calls._present) for _ in range(2)}
    assert len(later) == 1
    assert device_calls.planned(*given, "") != device_calls.planned(*given, "")
    device_calls._kept.cache_clear()
