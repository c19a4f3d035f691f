"""Steps of explicit methods, by passes over memory, against the formulas of textbooks."""

import copy
import gc
import math
import pickle
import weakref
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS
from split_problem import (
    EXPLICIT,
    HEUN,
    HEUN_EULER,
    LAST_IS_FIRST,
    MANY,
    METHODS,
    PRODUCTS,
    SOURCES,
    Parts,
    name_of,
    pair,
    random_state,
    rounding,
    textbook_dense_stages,
    textbook_step,
    turned,
    wave,
)

from batchkron.problems import make
from batchkron.solvers import steppers
from batchkron.solvers.steppers import step_runner
from batchkron.solvers.steppers.step_runner import StepTimes

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
TABLEAUS = [method for method in METHODS if hasattr(steppers.get(method), "tableau")]
EMBEDDED = [method for method in TABLEAUS if steppers.get(method).tableau.embedded is not None]
by_name = {"ids": name_of}


def compare(found, expected, bound):
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def times_of(steps, dt=0.1, t0=0.3):
    """Steps of equal length, whose ends are rounded."""
    ends = [t0 + k * dt for k in range(steps + 1)]
    return [StepTimes(t, t_next, dt) for t, t_next in pairwise(ends)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, **by_name)
def test_steps_are_those_of_the_textbook(rng, method, dtype):
    for size in (0, 1, 7):
        for products, sources in (("one", "no"), ("one with a factor", "three"), ("three", "one")):
            known, plain = pair(rng, products, sources, dtype, size)
            for problem in (known, plain):
                stepper, u = steppers.get(method)(problem, 0.1), problem.initial.copy()
                for t, t_next, dt in times_of(3):
                    expected, _, slopes = textbook_step(method, plain, u, t, t_next, dt)
                    bound = rounding(u, dt, slopes)
                    assert stepper.step(u, t, t_next) is None
                    assert u.dtype == dtype
                    compare(u, expected, bound)


@pytest.mark.parametrize("sources", SOURCES)
@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("method", ["rk4", "ssp-rk3", "dormand-prince", LAST_IS_FIRST], **by_name)
def test_parts_of_the_right_hand_side(rng, method, products, sources):
    """Also where a slope is that of the step before, without its factor and its sources."""
    known, plain = pair(rng, products, sources)
    one, other = (steppers.get(method)(problem, 0.1) for problem in (known, plain))
    u = known.initial.copy()
    v = u.copy()
    for t, t_next, dt in times_of(4):
        _, _, slopes = textbook_step(method, plain, v, t, t_next, dt)
        one.take(u, [StepTimes(t, t_next, dt)])
        other.take(v, [StepTimes(t, t_next, dt)])
        compare(u, v, 4 * rounding(v, dt, slopes))
        np.copyto(v, u)
    assert known.calls > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("products", ["one with a factor", "two with factors"])
@pytest.mark.parametrize("method", TABLEAUS, **by_name)
def test_attempts(rng, method, products, dtype):
    """Estimates, a rejected step, slopes of the step before, states between the ends."""
    known, plain = pair(rng, products, "three", dtype)
    tableau = steppers.get(method).tableau
    for problem in (known, plain):
        stepper, u = steppers.get(method)(problem, 0.1), problem.initial.copy()
        t = 0.3
        for number, dt in enumerate((0.2, 0.1, 0.1, 0.05)):  # the first one is rejected
            before, out = u.copy(), np.full_like(u, np.nan)
            if stepper.error is not None:
                stepper.error.fill(np.nan)
            calls = problem.calls
            assert stepper.attempt(u, t, t + dt, dt, out) is None
            evaluations = problem.calls - calls
            knows = number == 1 or (number > 1 and tableau.first_is_last)
            assert evaluations == tableau.stages - knows
            expected, error, slopes = textbook_step(method, plain, before, t, t + dt, dt)
            bound = rounding(u, dt, slopes)
            np.testing.assert_array_equal(u, before)
            compare(out, expected, bound)
            if error is not None:
                compare(stepper.error, error, bound)
            times = StepTimes(t, t + dt, dt)
            slopes += textbook_dense_stages(tableau, plain, before, times, slopes)
            check_dense_output(stepper, tableau, before, dt, slopes, bound)
            if tableau.first_is_last:
                compare(stepper.end_slope(), slopes[tableau.stages - 1], 40 * bound / dt)
            else:
                assert stepper.end_slope() is None
            if number > 0:
                stepper.accept()
                u, t = out, t + dt


def check_dense_output(stepper, tableau, u, dt, slopes, bound):
    between = np.full_like(u, np.nan)
    for theta in (0.0, 0.3, 1.0):
        assert stepper.interpolate(u, theta, between) == (tableau.dense is not None)
        if tableau.dense is None:
            continue
        weights = tableau.dense @ theta ** np.arange(1, tableau.dense.shape[1] + 1)
        expected = u + sum(float(dt * w) * k for w, k in zip(weights, slopes, strict=True))
        compare(between, expected, 4 * bound)


@pytest.mark.parametrize("method", EMBEDDED, **by_name)
def test_estimates_that_nobody_wants_are_not_computed(rng, method):
    known, plain = pair(rng, "two", "one")
    stepper, u = steppers.get(method)(known, 0.1), known.initial.copy()
    stepper.estimates, stepper.measures = False, True
    out = np.full_like(u, np.nan)
    stepper.attempt(u, 0.3, 0.4, 0.1, out)
    assert stepper.error is None
    expected, _, slopes = textbook_step(method, plain, u, 0.3, 0.4, 0.1)
    compare(out, expected, rounding(u, 0.1, slopes))
    assert stepper.squares()[-1, 0] == pytest.approx(np.vdot(expected, expected).real, rel=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, **by_name)
def test_squares_of_norms(rng, method, dtype):
    known, plain = pair(rng, "two", "three", dtype, size=1001)
    stepper, u = steppers.get(method)(known, 0.1), known.initial.copy()
    assert stepper.squares() is None
    stepper.measures = True
    states, v, steps = [], u.copy(), times_of(3)
    for times in steps:
        v = textbook_step(method, plain, v, *times)[0]
        states.append(np.vdot(v, v).real)
    stepper.take(u, steps)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(stepper.squares()[:, 0], states, rtol=1000 * eps)
    if method in EMBEDDED:
        out = np.empty_like(u)
        stepper.attempt(u, steps[-1].t_next, 0.7, 0.1, out)
        other = steppers.get(method)(known, 0.1)
        other.attempt(u, steps[-1].t_next, 0.7, 0.1, np.empty_like(u))
        error = other.error.astype(np.result_type(dtype, np.float64))
        ends = [np.linalg.norm(out) ** 2, np.vdot(error, error).real]
        np.testing.assert_allclose(stepper.squares()[:, :2], [ends], rtol=1000 * eps)


@pytest.mark.parametrize("products", ["one with a factor", "three"])
@pytest.mark.parametrize("method", METHODS, **by_name)
def test_steps_that_are_taken_together_have_the_bits_of_single_ones(rng, method, products):
    problem, _ = pair(rng, products, "three", np.complex64)
    one, other = (steppers.get(method)(problem, 0.01) for _ in range(2))
    one.measures = other.measures = True
    u = problem.initial.copy()
    v, work = u.copy(), np.full_like(u, np.nan)
    steps, squares = times_of(80, 0.01), []
    for t, t_next, _ in steps:
        one.step(u, t, t_next)
        squares.append(one.squares()[-1, 0])
    for first, last in ((0, 64), (64, 65), (65, 75), (75, 80)):
        other.take(v, steps[first:last], work)
        np.testing.assert_array_equal(other.squares()[:, 0], squares[first:last])
    np.testing.assert_array_equal(u, v)
    assert abs(u - problem.initial).max() > 0.1


@pytest.mark.parametrize("method", TABLEAUS, **by_name)
def test_attempts_and_steps_in_place_have_the_same_bits(rng, method):
    known, _ = pair(rng, "two", "one")
    one, other = (steppers.get(method)(known, 0.1) for _ in range(2))
    u = known.initial.copy()
    v, out = u.copy(), np.empty_like(u)
    steps = times_of(5)
    for times in steps:
        one.attempt(u, *times, out)
        one.accept()
        u, out = out, u
    other.take(v, steps)
    np.testing.assert_array_equal(u, v)
    one.take(u, times_of(2, t0=steps[-1].t_next))  # goes on with the slope of the last attempt
    other.take(v, times_of(2, t0=steps[-1].t_next))
    np.testing.assert_array_equal(u, v)


@pytest.mark.parametrize("method", METHODS, **by_name)
def test_steps_of_changing_length_and_another_state(rng, method):
    """A `step` begins with whatever state is given, also at the time where the last one ended."""
    known, plain = pair(rng, "one with a factor", "one")
    stepper = steppers.get(method)(known, 0.1)
    for t, dt in ((0.3, 0.1), (0.4, 0.2), (0.4, 0.1), (0.4, 0.1)):
        u = random_state(rng, 7, np.float64)
        expected, _, slopes = textbook_step(method, plain, u, t, t + dt, dt)
        bound = rounding(u, dt, slopes)
        stepper.dt = dt
        stepper.step(u, t, t + dt)
        compare(u, expected, bound)


@pytest.mark.parametrize("method", ["rk4", "dormand-prince", HEUN_EULER], **by_name)
def test_steps_over_many_vectors(rng, method):
    """More states than a stepper keeps the passes of."""
    known, plain = pair(rng, "two", "one")
    stepper, states = steppers.get(method)(known, 0.1), []
    for k in range(40):
        u = random_state(rng, 7, np.float64)
        states.append(u)
        for v in states[-1 - k % 3 :]:
            expected, _, slopes = textbook_step(method, plain, v, 0.3, 0.4, 0.1)
            bound = rounding(v, 0.1, slopes)
            stepper.step(v, 0.3, 0.4)
            compare(v, expected, bound)


# States that the kernels do not take


@pytest.mark.parametrize("kind", ["strided", "reversed", "swapped bytes", "extended"])
@pytest.mark.parametrize("measures", [False, True])
@pytest.mark.parametrize("method", ["forward-euler", "rk4", "bogacki-shampine", HEUN], **by_name)
def test_states_of_other_layouts(rng, method, measures, kind):
    known, plain = pair(rng, "two", "three")
    dtype = {"swapped bytes": ">f8", "extended": np.longdouble}.get(kind, np.float64)
    strides = {"strided": 3, "reversed": -1}.get(kind, 1)
    if kind == "extended":
        for problem in (known, plain):
            problem.initial = problem.initial.astype(dtype)
            problem.sources = [(f, s.astype(dtype)) for f, s in problem.sources]
    for problem in (known, plain):
        stepper = steppers.get(method)(problem, 0.1)
        stepper.measures = measures
        whole = np.full(7 * abs(strides), 7.0).astype(dtype)
        u = whole[::strides]
        u[...] = problem.initial
        for t, t_next, dt in times_of(3):
            expected, _, slopes = textbook_step(method, plain, u.astype("f8"), t, t_next, dt)
            stepper.step(u, t, t_next)
            compare(u, expected, rounding(np.float64(u), dt, slopes))
            assert stepper.squares() is None  # whoever measures has to look at u
        assert (whole.reshape(7, -1)[:, 1:] == 7.0).all()


@pytest.mark.parametrize("method", METHODS, **by_name)
def test_states_that_do_not_fit(rng, method):
    known, plain = pair(rng, "one", "one")
    for problem in (known, plain):
        for wrong in (np.ones(1), np.ones(6), np.ones(7, np.float32), np.ones(7, np.int64)):
            stepper = steppers.get(method)(problem, 0.1)
            before = wrong.copy()
            with pytest.raises((ValueError, TypeError)) as caught:
                stepper.step(wrong, 0.3, 0.4)
            assert "internal" not in str(caught.value)
            np.testing.assert_array_equal(wrong, before)
        fixed = problem.initial.copy()
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            steppers.get(method)(problem, 0.1).step(fixed, 0.3, 0.4)


# More vectors than one sum of a table takes


@pytest.fixture
def few_vectors(monkeypatch):
    """Tables whose sums take few vectors, as those of a device take 16."""
    from batchkron.backends.host import StepTable

    most, sum_pass = 3, StepTable.sum_pass

    def checked(self, first, vectors, *arguments, **options):
        assert len(vectors) <= most
        return sum_pass(self, first, vectors, *arguments, **options)

    monkeypatch.setattr(StepTable, "max_vectors", most)
    monkeypatch.setattr(StepTable, "sum_pass", checked)


@pytest.mark.parametrize("is_faster_ahead", [False, True])
@pytest.mark.parametrize("method", METHODS, **by_name)
def test_sums_of_more_vectors_than_a_table_takes(rng, few_vectors, method, is_faster_ahead):
    known, plain = pair(rng, "two", "three")
    stepper, u = steppers.get(method)(known, 0.1), known.initial.copy()
    stepper.measures, stepper._runner._is_faster_ahead = True, is_faster_ahead
    for t, t_next, dt in times_of(2):
        expected, _, slopes = textbook_step(method, plain, u, t, t_next, dt)
        bound = rounding(u, dt, slopes)
        stepper.step(u, t, t_next)
        compare(u, expected, 2 * bound)
        assert stepper.squares()[-1, 0] == pytest.approx(np.vdot(u, u), rel=1e-13)
    if method not in EMBEDDED:
        return
    if is_faster_ahead:
        stepper.error = None  # a device only finds its norm
    out = np.full_like(u, np.nan)
    stepper.attempt(u, 0.5, 0.6, 0.1, out)
    expected, error, slopes = textbook_step(method, plain, u, 0.5, 0.6, 0.1)
    bound = 2 * rounding(u, 0.1, slopes)
    compare(out, expected, bound)
    sizes = np.sqrt(stepper.squares()[-1, :2])
    np.testing.assert_allclose(sizes, np.linalg.norm([out, error], axis=1), rtol=0, atol=8 * bound)


# What belongs to whom


class Overriding(Parts):
    """A right-hand side that the parts of its base do not know."""

    def split_rhs(self):
        return Parts._split(self)

    calls_of_own = 0


class Other(Overriding):
    def rhs(self, t, u, out):
        self.calls_of_own += 1
        out[...] = 2.0 * u


@pytest.mark.parametrize("method", EXPLICIT)
def test_parts_of_another_right_hand_side_are_not_taken(rng, method):
    problem = Other(random_state(rng, 5, "f8"), [(wave, turned)], [], split=False)
    u = problem.initial.copy()
    steppers.get(method)(problem, 0.1).step(u, 0.0, 0.1)
    growth = np.polyval(steppers.get(method).stability_polynomial[::-1], 0.2)
    np.testing.assert_allclose(u, growth * problem.initial, rtol=1e-14)
    assert problem.calls_of_own > 0


@pytest.mark.parametrize("method", ["rk4", "dormand-prince", MANY], **by_name)
def test_vectors_live_as_long_as_their_stepper(rng, method):
    """Without the garbage collector, which may come much later."""
    known, plain = pair(rng, "three", "one")
    for problem in (known, plain):
        for spaced in (False, True):
            stepper, u = steppers.get(method)(problem, 0.1), np.ones(14)[:: 1 + spaced][:7]
            stepper.step(u, 0.0, 0.1)
            lasting = [weakref.ref(stepper._runner), weakref.ref(stepper._runner._like)]
            gc.disable()
            try:
                del stepper
                assert [one() for one in lasting] == [None, None]
            finally:
                gc.enable()


@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
def test_few_large_states_are_kept(rng, method, monkeypatch):
    """Of a stepper that is given another array for each step."""
    monkeypatch.setattr(step_runner, "_MAX_RECORDED", 6)
    problem, _ = pair(rng, "two", "one")
    stepper, states = steppers.get(method)(problem, 0.1), []
    for t, t_next, _ in times_of(20):
        u = problem.initial.copy()
        states.append(weakref.ref(u))
        stepper.step(u, t, t_next)
        del u
        assert sum(state() is not None for state in states) <= 4


@pytest.mark.parametrize("method", ["ssp-rk3", "dormand-prince"])
def test_copies_have_vectors_of_their_own(method):
    problem = make("continuity-2d", 2, 1)
    stepper, u = steppers.get(method)(problem, 1e-3), problem.initial.copy()
    stepper.step(u, 0.0, 1e-3)
    others = [copy.deepcopy(stepper)]
    if method == "ssp-rk3":  # a class by its name
        others.append(pickle.loads(pickle.dumps(stepper)))
    states = [u.copy() for _ in others]
    for t in (1e-3, 2e-3):
        stepper.step(u, t, t + 1e-3)
        for other, v in zip(others, states, strict=True):
            other.step(v, t, t + 1e-3)
            np.testing.assert_array_equal(v, u)


@pytest.mark.parametrize("method", METHODS, **by_name)
def test_states_that_become_read_only(rng, method):
    problem, _ = pair(rng, "one", "one")
    stepper, u = steppers.get(method)(problem, 0.1), problem.initial.copy()
    stepper.step(u, 0.0, 0.1)
    u.flags.writeable, before = False, u.copy()
    with pytest.raises(ValueError, match=r"read-only|writ"):
        stepper.step(u, 0.1, 0.2)
    np.testing.assert_array_equal(u, before)
    u.flags.writeable = True
    stepper.step(u, 0.1, 0.2)
    assert (u != before).all()


def after_one(t):
    return np.sin(t) if t < 1.0 else 1.0 + 0.0 * t


@pytest.mark.parametrize("function", [math.cos, lambda t: 1.0, lambda t: float(t), after_one])
def test_functions_of_single_times(rng, function):
    problem, _ = pair(rng, "one", "no")
    for place in ("products", "sources"):
        product = [(function, turned)] if place == "products" else problem.products
        source = [(function, np.ones(7))] if place == "sources" else []
        wrong = Parts(problem.initial, product, source, split=True)
        with pytest.raises(TypeError, match=r"function of time .* numpy.vectorize\(function\)"):
            steppers.get("rk4")(wrong, 0.1).step(np.ones(7), 0.0, 0.1)
        if place == "sources":
            source = [(np.vectorize(function), np.ones(7))]
            right = Parts(problem.initial, product, source, split=True)
            steppers.get("rk4")(right, 0.1).step(np.ones(7), 0.0, 0.1)


def half(t):
    t *= 0.5
    return np.cos(t)


@dataclass
class Pulse:  # Python gives it no hash
    width: float

    def __call__(self, t):
        return np.exp(-((t / self.width) ** 2))


POLYNOMIAL = np.polynomial.Polynomial([1.0, -2.0, 3.0])  # has no hash either


OWN = {"in place": half, "no hash": Pulse(0.7), "polynomial": POLYNOMIAL}


@pytest.mark.parametrize("method", ["forward-euler", "rk4", "dormand-prince"])
@pytest.mark.parametrize("function", OWN.values(), ids=OWN)
def test_functions_that_overwrite_times_or_have_no_hash(rng, method, function):
    initial, first, second = (random_state(rng, 7, np.float64) for _ in range(3))
    given = initial, [(function, turned)], [(function, first), (wave, second)]
    found = initial.copy()
    steppers.get(method)(Parts(*given, split=True), 0.1).take(found, times_of(3))
    expected, bound = initial, 0.0
    for times in times_of(3):
        expected, _, slopes = textbook_step(method, Parts(*given, split=False), expected, *times)
        bound = 2.0 * bound + rounding(expected, 0.1, slopes)  # a step enlarges no error by more
    compare(found, expected, bound)


@pytest.mark.parametrize("place", ["products", "sources"])
def test_functions_with_complex_values(rng, place):
    def turning(t):
        return np.exp(1j * t)

    product = [(turning if place == "products" else None, turned)]
    source = [(turning, np.ones(7, complex))] if place == "sources" else []
    wrong = Parts(np.ones(7, complex), product, source, split=True)
    with pytest.raises(TypeError, match=r"function of time .* complex128.*real"):
        steppers.get("rk4")(wrong, 0.1).step(np.ones(7, complex), 0.0, 0.1)


@pytest.mark.parametrize("name", EQUAL_STEPS)
def test_methods_say_whether_they_take_several_steps(name):
    cls = steppers.get(name)
    problem = SimpleNamespace(
        initial=np.ones(2), operator=-np.eye(2), rhs=lambda t, u, out: np.negative(u, out=out)
    )
    stepper = cls(problem, 0.1)
    assert stepper.takes_any_dt == (name in EXPLICIT)
    assert not stepper.is_faster_ahead
    assert stepper.squares() is None
    stepper.restart()
    if name not in EXPLICIT:
        with pytest.raises(TypeError, match=f"{name} takes single steps only"):
            stepper.take(np.ones(2), times_of(2))
