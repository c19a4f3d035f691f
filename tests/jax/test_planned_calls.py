"""What the compiled core does with XLA's calls on a device: Python is called, or kernels."""

import ctypes

import numpy as np
import pytest
from fake_driver import FakeDriver
from xla_frames import INITIALIZE, MEMORY, STREAM, call, filled

from batchkron.backends.cpu import native
from batchkron.jax import device_calls, python_calls

NO_CONTEXT = 0, 0, 0


def test_what_python_gets_on_a_device():
    """Addresses, dtypes, shapes and the stream, as `batchkron.jax.python_calls` reads them."""
    (fill, addresses), calls = filled(), []
    try:
        native.set_jax_function(lambda *given: calls.append(given))
        assert call("jax_python_on_device", fill=fill) is None
        x, y = ((address, "complex128", (2, 3)) for address in addresses)
        assert calls == [("kron_matmul", [x], [y], True, STREAM)]

        def fails(*given):
            raise KeyError("no such kernel")

        native.set_jax_function(fails)
        code, text = call("jax_python_on_device", fill=fill)
        assert code == 13
        assert "KeyError: 'no such kernel'" in text
    finally:
        native.set_jax_function(python_calls.call)


@pytest.fixture
def planner():
    """Sets the function that plans calls on a device; each test's are for a device of its own."""
    yield native.set_jax_planner
    native.set_jax_planner(device_calls.planned)


def sequence_on(driver, size):
    """A launch of a kernel whose arguments are all addresses that a call passes."""
    launch = native.DeviceLaunch(
        driver.address, driver.check, 1, *(1,) * 5, False, bytes(8 * size), 0, 8 * size
    )
    places = [(8 * k, k, 0) for k in range(size)]
    return native.DeviceSequence([launch], [places], size)


def test_calls_on_a_device_are_planned_once(planner):
    (fill, (x, y)), memory, asked, driver = filled(), [], [], FakeDriver(40)
    sources = [(0, 16, 0), (-3, 32, 0), (-1, 0, 8), (-2, 0, 0), (0, 0, 64)]
    current, own, changes = [40], 41, []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
    def get_current(place):
        place[0] = current[0]
        return 0

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def set_current(context):
        current[0] = context
        changes.append(context)
        return 0

    contexts = *(ctypes.cast(one, ctypes.c_void_p).value for one in (get_current, set_current)), own

    def plan(*given):
        asked.append(given)
        return sequence_on(driver, 5), 1000, 2, sources, contexts

    def run(**options):
        return call("jax_planned_on_device", fill=fill, device=6, **options)

    planner(plan)
    for count in (1, 2):
        assert run(memory=memory) is None
        launched = [np.frombuffer(one[4], np.uint64).tolist() for one in driver.calls[-2:]]
        assert launched == [
            [x, y, MEMORY + 8, 0, x + 64],
            [x + 16, y + 32, MEMORY + 8, 0, x + 64],
        ]
        assert {one[1] for one in driver.calls} == {STREAM}
        assert memory == [1000, (1000, MEMORY)] * count
    assert asked == [("kron_matmul", True, "", 6, [("complex128", (2, 3))], "")]
    assert changes == [own, 40] * 2
    current[0] = own
    assert run()[0] == 8  # RESOURCE_EXHAUSTED
    assert run(memory=memory) is None
    assert changes == [own, 40] * 2
    native.forget_jax_plans()
    assert run(memory=memory) is None
    assert len(asked) == 2


def test_calls_of_several_results(planner):
    """What is wanted belongs to the layout; results have numbers from -3 down."""
    asked, driver = [], FakeDriver(16)

    def plan(*given):
        asked.append(given[2])
        number = len(given[2].split())
        return sequence_on(driver, 2), 0, 1, [(-2 - number, 0, 0), (0, 0, 0)], NO_CONTEXT

    planner(plan)
    for wanted in ("0 2", "1 2", "0 1 2", "0 2"):
        fill, addresses = filled(len(wanted.split()), wanted)
        assert call("jax_planned_on_device", fill=fill, device=8) is None
        launched = np.frombuffer(driver.calls[-1][4], np.uint64).tolist()
        assert launched == [addresses[-1], addresses[0]]
    assert asked == ["0 2", "1 2", "0 1 2"]


def test_errors_of_planned_calls(planner):
    (fill, _), driver = filled(), FakeDriver(8, status=700)

    def run():
        return call("jax_planned_on_device", fill=fill, device=7)

    def fails(*given):
        raise KeyError("no such kernel")

    planner(fails)
    code, text = run()
    assert code == 13
    assert "KeyError: 'no such kernel'" in text
    for sources in ([(0, 0, 0), (0, 0, 0)], [(1, 0, 0)], [(-4, 0, 0)]):
        planner(lambda *given, own=sources: (sequence_on(driver, 1), 0, 1, own, NO_CONTEXT))
        code, text = run()
        assert code == 13
        assert "internal error of batchkron" in text
    planner(lambda *given: (sequence_on(driver, 1), 0, 3, [(0, 0, 0)], NO_CONTEXT))
    code, text = run()
    assert code == 13
    assert "status 700" in text
    assert len(driver.calls) == 1


def test_calls_in_graphs(planner):
    """They are planned before a run, and take the workspace of the last result."""
    fill, (x, y, memory) = filled(workspace=1000, plans="3")
    asked, driver = [], FakeDriver(24)

    def plan(*given):
        asked.append(given)
        sources = [(0, 8, 0), (-3, 8, 0), (-1, 0, 16)]
        return sequence_on(driver, 3), 1000, 2, sources, NO_CONTEXT

    def run(**options):
        return call("jax_captured_on_device", device=9, **{"fill": fill, **options})

    planner(plan)
    assert run(stage=INITIALIZE) is None
    assert (len(asked), driver.calls) == (1, [])

    def unplanned(*given):
        raise AssertionError("a graph may be captured")

    planner(unplanned)
    for _ in range(2):
        assert run() is None  # without memory that could be allocated
    launched = [np.frombuffer(one[4], np.uint64).tolist() for one in driver.calls]
    assert launched == [[x, y, memory + 16], [x + 8, y + 8, memory + 16]] * 2
    assert asked[0][-1] == "3"
    native.forget_jax_plans()
    assert run() is None, "a compiled function keeps its plans"
    small, _ = filled(workspace=999, plans="3")
    for stage in (INITIALIZE, 3):
        code, text = run(fill=small, stage=stage)
        assert code == 3  # INVALID_ARGUMENT
        assert "need 1000 bytes of workspace, but the function was compiled with 999" in text
    without, _ = filled(2, plans="3")
    code, text = run(fill=without)
    assert code == 13
    assert "unexpected workspace" in text
    assert len(driver.calls) == 6
    other, _ = filled(workspace=1000, plans="4")
    assert "a graph may be captured" in run(fill=other)[1], "other plans"


def test_calls_in_graphs_that_fail_to_be_planned(planner):
    fill, _ = filled(workspace=0, plans="0")

    def fails(*given):
        raise KeyError("no such kernel")

    planner(fails)
    for stage in (INITIALIZE, 3):
        code, text = call("jax_captured_on_device", fill=fill, device=10, stage=stage)
        assert code == 13
        assert "KeyError: 'no such kernel'" in text
