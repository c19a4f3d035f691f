"""Explicit steps on a device: passes with numbers of a table, graphs, several steps at once."""

from types import SimpleNamespace

import numpy as np
import pytest
from problems_in_parts import PROBLEMS
from split_problem import (
    EXPLICIT,
    HEUN_EULER,
    LAST_IS_FIRST,
    Parts,
    many_stages,
    name_of,
    pair,
    textbook_step,
)

import batchkron as bk
from batchkron.problems import make
from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.solvers.steppers.step_runner import StepTimes

pytestmark = pytest.mark.gpu

MANY = many_stages(21)  # more than a kernel takes at once
METHODS = [*EXPLICIT, HEUN_EULER, LAST_IS_FIRST, MANY]
CAPTURED = 8  # calls after which work is a graph
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def close(found, expected, factor=1e-11):
    expected = np.asarray(expected)
    scale = factor * np.abs(expected).max()
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=scale)


def factor_of(dtype):
    return 500 * np.finfo(dtype).eps


def on_device(cupy, problem, *, split=True, is_repeatable=False):
    """The same `Parts` on the device, whose functions are CuPy's."""
    return Parts(
        problem.initial, problem.products, problem.sources,
        split=split, module=cupy, is_repeatable=is_repeatable,
    )  # fmt: skip


def times_of(count, dt, t0=0.0):
    ends = [t0 + k * dt for k in range(count + 1)]
    return [StepTimes(ends[k], ends[k + 1], dt) for k in range(count)]


@pytest.fixture
def launches(monkeypatch):
    """Counts launches of our kernels from Python."""
    from batchkron.backends.cuda.runtime.launch import Launch

    found, launch = SimpleNamespace(count=0), Launch.__call__

    def counted(self, *arguments):
        found.count += 1
        return launch(self, *arguments)

    monkeypatch.setattr(Launch, "__call__", counted)
    return found


@pytest.fixture
def reads(monkeypatch):
    """Counts how often the results of steps are waited for."""
    from batchkron.backends.cuda.step_sums.plan import StepTable

    found, read = SimpleNamespace(count=0), StepTable.read

    def counted(self, count):
        found.count += 1
        return read(self, count)

    monkeypatch.setattr(StepTable, "read", counted)
    return found


# Steps


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", EXPLICIT)
def test_steps_are_those_of_the_host(cupy, method, name):
    """Products with functions of time, sources, fields and gains; called, and as graphs."""
    problem = PROBLEMS[name]()
    device, dt = problem.to("cuda"), 1e-4
    pair_of = [steppers.get(method)(one, dt) for one in (problem, device)]
    u, v = problem.initial.copy(), cupy.array(device.initial)
    for k in range(2 * CAPTURED):
        for stepper, state in zip(pair_of, (u, v), strict=True):
            stepper.step(state, k * dt, (k + 1) * dt)
        close(v, u)
    assert any(pair_of[1]._runner._recorder._graphs.values())
    steps = times_of(64, dt, 2 * CAPTURED * dt)
    for stepper, state in zip(pair_of, (u, v), strict=True):
        stepper.take(state, steps)
    close(v, u)


@pytest.mark.parametrize("products", ["one", "one with a factor", "two with factors", "three"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_problems_of_other_dtypes(cupy, rng, method, dtype, products):
    """By CuPy's functions: with parts, which may be graphs, and with `rhs` alone."""
    _, plain = pair(rng, products, "three", dtype, size=37)
    repeats = products != "three"  # one of its products depends on time by itself
    for options in ({"split": False}, {}, {"is_repeatable": repeats}):
        device, dt = on_device(cupy, plain, **options), 0.05
        stepper, v = steppers.get(method)(device, dt), cupy.array(device.initial)
        assert stepper.is_faster_ahead
        u = plain.initial.copy()
        for t, t_next, _ in times_of(2 * CAPTURED, dt, 0.3):
            u = textbook_step(method, plain, u, t, t_next, dt)[0]
            stepper.step(v, t, t_next)
        assert v.dtype == dtype
        close(v, u, factor_of(dtype))
        recorder = stepper._runner._recorder
        assert (recorder is not None) == options.get("is_repeatable", False)
        assert recorder is None or any(recorder._graphs.values())


@pytest.mark.parametrize("is_repeatable", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("method", ["bogacki-shampine", "dormand-prince", HEUN_EULER, MANY],
                         ids=name_of)  # fmt: skip
def test_attempts(cupy, rng, method, dtype, is_repeatable):
    """Ends, norms of estimated errors, which are not stored, slopes, rejected attempts."""
    _, plain = pair(rng, "two with factors", "three", dtype, size=1001)
    stepper = steppers.get(method)(on_device(cupy, plain, is_repeatable=is_repeatable), 0.1)
    stepper.measures = True
    t, u, factor = 0.3, cupy.array(plain.initial), factor_of(dtype)
    v = cupy.empty_like(u)
    for k in range(3 * CAPTURED):
        dt = 0.1 if k % 3 else 0.2  # the longer ones are rejected
        stepper.attempt(u, t, t + dt, dt, v)
        expected, error, slopes = textbook_step(method, plain, u.get(), t, t + dt, dt)
        close(v, expected, factor)
        sizes = np.sqrt(stepper.squares()[-1])
        scale = factor * np.linalg.norm(expected)
        np.testing.assert_allclose(sizes, np.linalg.norm([expected, error], axis=1), atol=scale)
        assert stepper.error is None
        if stepper.end_slope() is not None:
            close(stepper.end_slope(), slopes[-1], 50 * factor)
        if k % 3:
            stepper.accept()
            u[...] = v
            t += dt
    stepper.measures = False
    stepper.attempt(u, t, t + dt, dt, v)
    _, error, _ = textbook_step(method, plain, u.get(), t, t + dt, dt)
    np.testing.assert_allclose(stepper.error.get(), error, atol=factor * abs(plain.initial).max())


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_steps_that_are_taken_together_have_the_bits_of_single_ones(cupy, rng, method):
    _, plain = pair(rng, "two with factors", "three", np.float64, size=5003)
    for options in ({"split": False}, {}, {"is_repeatable": True}):
        device = on_device(cupy, plain, **options)
        one, other = (steppers.get(method)(device, 0.01) for _ in range(2))
        one.measures = other.measures = True
        u, v, squares = cupy.array(device.initial), cupy.array(device.initial), []
        steps = times_of(150, 0.01)
        for t, t_next, _ in steps:
            one.step(u, t, t_next)
            squares.append(one.squares()[-1, 0])
        for first, last in ((0, 64), (64, 65), (65, 86), (86, 150)):
            other.take(v, steps[first:last])
            np.testing.assert_array_equal(other.squares()[:, 0], squares[first:last])
        np.testing.assert_array_equal(u.get(), v.get())


def test_states_with_strides(cupy, rng):
    _, plain = pair(rng, "two with factors", "three", size=37)
    for method in ("rk4", "bogacki-shampine"):
        stepper = steppers.get(method)(on_device(cupy, plain), 0.1)
        u, whole = plain.initial.copy(), cupy.full(3 * 37, 7.0)
        v = whole[::3]
        v[...] = cupy.asarray(u)
        for t, t_next, dt in times_of(3, 0.1):
            u = textbook_step(method, plain, u, t, t_next, dt)[0]
            stepper.step(v, t, t_next)
        close(v, u, factor_of(u.dtype))
        assert (whole.reshape(37, 3)[:, 1:] == 7.0).all()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1_000_003])
def test_sizes(cupy, rng, size):
    _, plain = pair(rng, "two with factors", "one", np.float32, size=size)
    stepper = steppers.get("rk4")(on_device(cupy, plain), 0.1)
    stepper.measures = True
    u, v = plain.initial.copy(), cupy.array(plain.initial)
    for t, t_next, dt in times_of(3, 0.1):
        u = textbook_step("rk4", plain, u, t, t_next, dt)[0]
        stepper.step(v, t, t_next)
        expected = np.linalg.norm(u.astype(np.float64)) ** 2
        np.testing.assert_allclose(stepper.squares()[-1, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(v.get(), u, rtol=0, atol=1e-4)


# Graphs


SUMS = {"forward-euler": 1, "ssp-rk3": 3, "rk4": 7, "dormand-prince": 6, HEUN_EULER: 2}


@pytest.mark.parametrize("method", SUMS, ids=name_of)
def test_launches_of_a_step(cupy, rng, launches, method):
    """One for each sum, until the step is a graph; sources are in the sums."""
    _, plain = pair(rng, "one with a factor", "three", size=301)
    stepper = steppers.get(method)(on_device(cupy, plain, is_repeatable=True), 0.01)
    u = cupy.array(plain.initial)
    kinds = 2 if method == "dormand-prince" else 1  # its first and last slopes swap their places
    counts = []
    for t, t_next, _ in times_of(6 * kinds + 6, 0.01):
        launches.count = 0
        stepper.step(u, t, t_next)
        counts.append(launches.count)
    assert counts == [SUMS[method]] * 6 * kinds + [0] * 6


def test_large_steps_are_no_graphs(cupy, launches):
    size = (1 << 21) + 1
    problem = Parts(np.ones(size), [(None, lambda t, u, out: cupy.negative(u, out=out))], [],
                    split=True, module=cupy, is_repeatable=True)  # fmt: skip
    stepper, u = steppers.get("rk4")(problem, 0.01), cupy.ones(size)
    assert stepper._runner._recorder is None
    for k in range(CAPTURED):
        stepper.step(u, 0.01 * k, 0.01 * (k + 1))
    np.testing.assert_allclose(u[::1001].get(), np.exp(-0.01 * CAPTURED), rtol=1e-9)


def test_work_that_cannot_be_captured(cupy, rng):
    """A product that looks at the state goes by way of the host."""
    seen = []

    def looks(t, u, out):
        seen.append(float(u.get()[0]))
        cupy.multiply(u, -0.5, out=out)

    problem = Parts(rng.uniform(1.0, 2.0, 9), [(None, looks)], [], split=True, module=cupy,
                    is_repeatable=True)  # fmt: skip
    stepper, u = steppers.get("ssp-rk3")(problem, 0.1), cupy.array(problem.initial)
    for k in range(2 * CAPTURED):
        stepper.step(u, 0.1 * k, 0.1 * (k + 1))
    growth = np.polyval(stepper.stability_polynomial[::-1], -0.05) ** (2 * CAPTURED)
    close(u, growth * problem.initial.get())
    assert len(seen) >= 3 * 2 * CAPTURED


@pytest.mark.parametrize("name", ["two-stream", "source"])
@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
def test_a_graph_of_the_user_after_ours(cupy, captured, method, name):
    problem = PROBLEMS[name]()
    device, dt = problem.to("cuda"), 1e-4
    stepper, u = steppers.get(method)(device, dt), cupy.array(device.initial)
    for _ in range(CAPTURED + 2):
        u[...] = device.initial
        stepper.step(u, 0.0, dt)
    u[...] = device.initial
    stream = cupy.cuda.Stream(non_blocking=True)
    start = cupy.array(device.initial)

    def step():
        u[...] = start
        stepper.step(u, 0.0, dt)

    graph = captured(stream, step)
    u[...] = 0.0
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = problem.initial.copy()
    steppers.get(method)(problem, dt).step(expected, 0.0, dt)
    close(u, expected)


def test_numbers_are_not_overwritten_early(cupy, rng):
    """The device is far behind a loop of steps that nobody looks at."""
    _, plain = pair(rng, "one with a factor", "three", size=11)
    for is_repeatable in (False, True):
        stepper = steppers.get("rk4")(on_device(cupy, plain, is_repeatable=is_repeatable), 0.01)
        u, v = plain.initial.copy(), cupy.array(plain.initial)
        large = cupy.ones((4096, 4096))
        for number, (t, t_next, dt) in enumerate(times_of(60, 0.01)):
            u = textbook_step("rk4", plain, u, t, t_next, dt)[0]
            if number % 20 == 10:
                large = large @ large * 1e-9
            stepper.step(v, t, t_next)
        close(v, u, factor_of(u.dtype))


def test_steps_on_other_streams(cupy, rng):
    _, plain = pair(rng, "one with a factor", "three", size=11)
    stepper = steppers.get("rk4")(on_device(cupy, plain, is_repeatable=True), 0.01)
    u, v = plain.initial.copy(), cupy.array(plain.initial)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    cupy.cuda.Device().synchronize()
    for number, (t, t_next, dt) in enumerate(times_of(24, 0.01)):
        u = textbook_step("rk4", plain, u, t, t_next, dt)[0]
        with streams[number % 2]:
            stepper.step(v, t, t_next)
            streams[number % 2].synchronize()
    close(v, u, factor_of(u.dtype))


# Runs


def pendulum(module):
    """Not linear: some steps are compared with two halves."""

    def rhs(t, u, out):
        out[:1] = u[1:]
        out[1:] = -module.sin(u[:1]) + 0.1 * np.cos(t)

    return SimpleNamespace(initial=module.asarray(np.array([1.0, 0.3])), rhs=rhs)


def same_records(found, expected):
    strip = [
        [{k: v for k, v in one.items() if k not in ("seconds", "norm", "message")} for one in each]
        for each in (found.history, expected.history)
    ]
    assert strip[0] == strip[1]
    norms = [[one.get("norm", 0.0) for one in each.history] for each in (found, expected)]
    np.testing.assert_allclose(*norms, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_runs_of_many_steps(cupy, reads, method):
    options = {"until": 40.0, "dt": 0.1, "method": method}
    expected = evolve(pendulum(np), **options)
    assert reads.count == 0
    found = evolve(pendulum(cupy), **options)
    assert (found.status, found.steps, found.t) == (expected.status, expected.steps, expected.t)
    assert found.status is EvolveStatus.COMPLETED
    close(found.u, expected.u, 1e-9)
    same_records(found, expected)
    assert reads.count < 200  # of 400 steps; most are taken by 8 to 31


def test_results_are_read_once_for_many_steps(cupy, reads):
    """Where all steps are alike, nothing is waited for but every 64th time."""
    problem = make("advection-1d", 4, 1).to("cuda")
    dt, steps = 0.1 * problem.stepper.dt, 3000
    result = evolve(problem, until=dt * steps, dt=dt, method="rk4")
    assert result.steps == steps
    assert reads.count <= steps // 64 + 60  # the first steps, which compile, seem long


@pytest.mark.parametrize("name", ["fields", "source", "two-stream", "boundary data", "gain"])
def test_runs_of_problems(cupy, name):
    problem = PROBLEMS[name]()
    options = {"until": 0.02, "dt": 1e-4, "method": "ssp-rk3", "allow_unstable": True}
    expected, found = evolve(problem, **options), evolve(problem.to("cuda"), **options)
    assert (found.status, found.steps) == (expected.status, expected.steps)
    close(found.u, expected.u, 1e-10)
    same_records(found, expected)


@pytest.mark.parametrize("method", [m for m in EXPLICIT if steppers.get(m).error_order])
@pytest.mark.parametrize("name", ["source", "two-stream", "factors"])
def test_steps_that_are_adapted(cupy, method, name):
    problem = PROBLEMS[name]()
    options = {"until": 0.05, "rtol": 1e-5, "method": method}
    expected, found = evolve(problem, **options), evolve(problem.to("cuda"), **options)
    assert (found.steps, found.rejected) == (expected.steps, expected.rejected)
    close(found.u, expected.u, 1e-8)


def test_errors_that_are_small_in_single_precision(cupy):
    def problem(module):
        rates = module.asarray(np.array([-1.0, -0.1], np.float32))
        return SimpleNamespace(
            initial=module.asarray(np.array([1e-9, 1e-12], np.float32)),
            rhs=lambda t, u, out: module.multiply(rates, u, out=out),
        )

    options = {"until": 20.0, "rtol": 1e-5, "atol": 1e-25, "method": "dormand-prince"}
    expected, found = evolve(problem(np), **options), evolve(problem(cupy), **options)
    assert found.status is EvolveStatus.COMPLETED
    assert found.steps == pytest.approx(expected.steps, abs=3)
    np.testing.assert_allclose(found.u.get(), expected.u, rtol=1e-3)


@pytest.mark.parametrize("at", [0.05, 1.55, 4.25])
@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
def test_a_state_that_is_not_finite_in_the_middle(cupy, method, at):
    def problem(module):
        own = pendulum(module)
        plain = own.rhs

        def rhs(t, u, out):
            plain(t, u, out)
            if t > at:
                out[:1] = np.nan

        own.rhs = rhs
        return own

    options = {"until": 10.0, "dt": 0.1, "method": method}
    expected, found = evolve(problem(np), **options), evolve(problem(cupy), **options)
    assert found.status is EvolveStatus.NOT_FINITE
    assert (found.steps, found.t) == (expected.steps, expected.t)
    np.testing.assert_array_equal(np.isnan(found.u.get()), np.isnan(expected.u))


def test_an_error_in_the_middle_keeps_a_checkpoint(cupy, tmp_path):
    from batchkron.storage import load_checkpoint

    problem, path = pendulum(cupy), tmp_path / "run.h5"
    own = problem.rhs

    def rhs(t, u, out):
        own(t, u, out)
        if t > 2.05:
            raise ZeroDivisionError

    problem.rhs = rhs
    options = {"dt": 0.1, "method": "rk4"}
    with pytest.raises(ZeroDivisionError):
        evolve(problem, until=10.0, **options, checkpoint=path)
    kept = load_checkpoint(path)
    assert 0 < kept.step <= 20
    expected = evolve(pendulum(np), until=0.1 * kept.step, **options)
    np.testing.assert_allclose(kept.u, expected.u, rtol=1e-9)


@pytest.mark.parametrize("every", [7, 64])
def test_checkpoints_and_resumed_runs(cupy, tmp_path, every):
    from batchkron.storage import load_checkpoint

    problem, path = PROBLEMS["source"](), tmp_path / "run.h5"
    device, options = problem.to("cuda"), {"dt": 1 / 4096, "method": "dormand-prince"}
    whole = evolve(device, until=200 / 4096, **options)
    evolve(device, until=100 / 4096, **options, checkpoint=path, checkpoint_every=every)
    assert load_checkpoint(path).step == 100
    resumed = evolve(device, until=200 / 4096, **options, resume=path)
    np.testing.assert_array_equal(resumed.u.get(), whole.u.get())


def test_an_unstable_run(cupy, rng):
    """The bound of the norm is exceeded in the middle of several steps."""
    problem = make("diffusion-1d", 4, 1)
    eigenvalues = np.linalg.eigvals(problem.operator.to_dense())
    dt = 1.1 * steppers.get("rk4").real_limit / abs(eigenvalues).max()
    options = {"until": 2000 * dt, "dt": dt, "method": "rk4", "allow_unstable": True}
    u0 = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
    expected = evolve(problem, u0=u0, **options)
    found = evolve(problem.to("cuda"), u0=cupy.asarray(u0), **options)
    assert found.status is expected.status is EvolveStatus.UNSTABLE
    assert found.steps == expected.steps > 8
    close(found.u, expected.u, 1e-9)


# Memory


@pytest.mark.parametrize(
    ("method", "vectors"), [("rk4", 3), ("ssp-rk3", 2), ("dormand-prince", 8), (HEUN_EULER, 3)],
    ids=name_of,
)  # fmt: skip
def test_vectors_of_a_run(cupy, method, vectors):
    """The method's own, the state, and that at the beginning of several steps."""
    size = 3_000_000
    operator = -1.0 * bk.Identity(size).to("cuda")
    pool, used = cupy.get_default_memory_pool(), []

    def rhs(t, u, out):
        cupy.negative(u, out=out)
        if t > 0.5:
            used.append(pool.used_bytes())

    problem = SimpleNamespace(initial=cupy.ones(size), rhs=rhs, operator=operator, is_linear=True)
    before = pool.used_bytes()
    result = evolve(problem, until=1.0, dt=0.01, method=method)
    assert result.status is EvolveStatus.COMPLETED
    own = vectors + 2  # with u and the copy
    assert max(used) - before <= (own + 0.5) * problem.initial.nbytes


def test_vectors_end_with_their_stepper(cupy, rng):
    """Without the garbage collector."""
    import gc
    import weakref

    _, plain = pair(rng, "two with factors", "three", size=1001)
    for is_repeatable in (False, True):
        stepper = steppers.get("rk4")(on_device(cupy, plain, is_repeatable=is_repeatable), 0.01)
        u = cupy.array(plain.initial)
        for k in range(CAPTURED + 2):
            stepper.step(u, 0.01 * k, 0.01 * (k + 1))
        runner = weakref.ref(stepper._runner)
        gc.disable()
        try:
            del stepper
            assert runner() is None
        finally:
            gc.enable()
