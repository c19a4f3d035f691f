"""A run as an object: what it tells, its hooks, and its last state."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import EvolveStatus, Run, evolve
from batchkron.storage import load_checkpoint

STEPS = {"until": 1.0, "method": "ssp-rk3", "dt": 0.01}


@pytest.fixture(scope="module")
def problem():
    return make("continuity-2d", level=3, degree=1)


def decay(fails_after=np.inf):
    """u' = -u, whose evaluation fails after a time."""

    def rhs(t, u, out):
        if t > fails_after:
            raise KeyError(f"no f at {t}")
        np.negative(u, out=out)

    return SimpleNamespace(initial=np.ones(3), rhs=rhs)


class Hook:
    """Counts the products that it sees."""

    def __init__(self):
        self.seen = 0

    @contextmanager
    def __call__(self):
        self.seen += 1
        yield


def test_it_tells_its_steps_before_the_first_one(problem):
    run = Run(problem, **STEPS)
    assert (run.t, run.step, run.first_step, run.products) == (0.0, 0, 0, 0)
    assert (run.integration.last_step, run.integration.dt) == (100, 0.01)
    assert run.integration.method.name == "ssp-rk3"
    np.testing.assert_array_equal(run.u, problem.initial)
    result = run.to_end()
    assert (run.t, run.step) == (result.t, result.steps) == (1.0, 100)
    assert result.u.tobytes() == run.u.tobytes() == evolve(problem, **STEPS).u.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        run.u[0] = 0.0


def test_hooks_may_be_set_before_the_steps(problem):
    run, steps = Run(problem, **STEPS), []
    run.on_step = lambda state: steps.append(state.step) or state.step == 7
    assert run.to_end().status is EvolveStatus.STOPPED
    assert steps == list(range(1, 8))


def test_all_products_are_counted_and_those_of_some_steps_are_seen(problem):
    hook = Hook()
    run = Run(problem, **STEPS, on_product=hook)
    expected = evolve(problem, **STEPS)
    assert run.to_end().u.tobytes() == expected.u.tobytes()
    assert run.products == 300
    assert 3 <= hook.seen < 300  # the core takes several steps in one call


@pytest.mark.parametrize(
    ("method", "products"), [("rk4", 400), ("backward-euler", None), ("ark2", None)]
)
def test_a_hook_sees_all_products_that_are_done_one_by_one(method, products):
    system = SimpleNamespace(operator=np.diag([-1.0, -2.0]), initial=np.ones(2), rhs=None)
    system.rhs = lambda t, u, out: np.matmul(system.operator, u, out=out)
    hook, options = Hook(), {**STEPS, "method": method}
    run = Run(system, **options, on_product=hook)
    assert run.to_end().u.tobytes() == evolve(system, **options).u.tobytes()
    assert run.products == hook.seen >= 100
    assert products is None or run.products == products


def test_a_failure_is_told_after_the_checkpoint_of_the_last_good_state(tmp_path):
    path, errors = tmp_path / "run.h5", []

    def note(error):
        errors.append((type(error), load_checkpoint(path).step))

    run = Run(decay(0.5), **STEPS, checkpoint=path, on_failure=note)
    with pytest.raises(KeyError, match="no f at"):
        run.to_end()
    assert errors == [(KeyError, run.step)]
    assert run.last_checkpoint == (run.step, run.t)
    assert run.u.tobytes() == evolve(decay(), **{**STEPS, "until": run.t}).u.tobytes()


def test_a_run_that_ends_well_may_leave_no_checkpoint(tmp_path):
    path = tmp_path / "run.h5"
    run = Run(decay(), **STEPS, checkpoint=path, checkpoint_at_end=False)
    assert run.to_end().status is EvolveStatus.COMPLETED
    assert not path.exists()
    assert run.last_checkpoint is None
    run.save_checkpoint()
    kept = load_checkpoint(path)
    assert (kept.step, kept.history[-1]["event"]) == (100, "completed")
    assert kept.u.tobytes() == run.u.tobytes()


@pytest.mark.parametrize("fails_after", [-1.0, 0.5, np.inf])
def test_a_run_that_is_stopped_or_fails_after_some_step_leaves_one(tmp_path, fails_after):
    path = tmp_path / "run.h5"
    run = Run(decay(fails_after), **STEPS, checkpoint=path, checkpoint_at_end=False)
    run.on_step = lambda state: state.step == 60
    if fails_after < np.inf:
        with pytest.raises(KeyError):
            run.to_end()
    else:
        run.to_end()
    assert path.exists() == (fails_after > 0.0)
    if path.exists():
        assert load_checkpoint(path).step == run.step > 0


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    problem = SimpleNamespace(initial=np.ones(2), rhs=lambda t, u, out: out.fill(np.nan))
    run = Run(problem, **STEPS, checkpoint=tmp_path / "run.h5")
    assert run.to_end().status is EvolveStatus.NOT_FINITE
    assert run.last_checkpoint is None
    with pytest.raises(ValueError, match="not finite"):
        run.save_checkpoint()
    assert not list(tmp_path.iterdir())


def below(t, u):
    return u[0] - 0.55


below.terminal = True


@pytest.mark.parametrize("method", ["rk4", "bogacki-shampine", "dormand-prince"])
def test_the_checkpoint_after_an_event_is_the_state_before_its_step(tmp_path, method):
    path = tmp_path / "run.h5"
    arguments = {"until": 1.0, "method": method, "dt": 0.1}
    run = Run(decay(), **arguments, events=[below], checkpoint=path)
    result = run.to_end()
    assert result.status is EvolveStatus.EVENT
    run.save_checkpoint()
    kept = load_checkpoint(path)
    np.testing.assert_allclose(kept.u, np.exp(-kept.t), rtol=1e-3)
    resumed = evolve(decay(), **arguments, resume=path)
    np.testing.assert_allclose(resumed.u, evolve(decay(), **arguments).u, rtol=1e-14)


def test_a_checkpoint_without_a_file_or_a_state_is_refused(tmp_path):
    run = Run(decay(), until=1.0, method="rk4", dt=0.1)
    run.to_end()
    with pytest.raises(ValueError, match="there is no file"):
        run.save_checkpoint()
    path = tmp_path / "run.h5"
    lost = SimpleNamespace(
        initial=np.ones(2), rhs=lambda t, u, out: out.fill(np.nan if t > 0.5 else 0.0)
    )
    run = Run(lost, until=1.0, method="dormand-prince", dt=0.1, checkpoint=path)
    assert run.to_end().status is EvolveStatus.NOT_FINITE
    with pytest.raises(ValueError, match="the step that ended the run failed"):
        run.save_checkpoint()
