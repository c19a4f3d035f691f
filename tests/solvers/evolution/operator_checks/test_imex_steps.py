"""IMEX methods refuse steps beyond their stability limit on linear problems, and only those."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron import problems
from batchkron.distributed import distribute, simulate
from batchkron.problems import PDE, Axis, Periodic, Separable, div, grad
from batchkron.solvers import EvolveStatus, evolve, steppers

IMEX = ("imex-euler", "ark2", "ark3")


def step_matrix(name, explicit, implicit):
    """The dense matrix of a step, stage by stage; both parts are times dt."""
    tableau, one = steppers.get(name).tableau, np.eye(len(explicit))
    slopes = []
    for i in range(tableau.stages):
        stage = one + sum(
            tableau.explicit[i, j] * slopes[j][0] + tableau.implicit[i, j] * slopes[j][1]
            for j in range(i)
        )
        stage = np.linalg.solve(one - tableau.implicit[i, i] * implicit, stage)
        slopes.append((explicit @ stage, implicit @ stage))
    return one + sum(b * (e + i) for b, (e, i) in zip(tableau.weights, slopes, strict=True))


def spectral_radius(name, dt, explicit, implicit):
    return np.abs(np.linalg.eigvals(step_matrix(name, dt * explicit, dt * implicit))).max()


def limit_of(name, explicit, implicit):
    """The largest dt up to which no power of a step grows, to 1 %."""
    dt = 1e-2
    while spectral_radius(name, dt, explicit, implicit) <= 1.001:
        dt *= 1.1
    good, bad = dt / 1.1, dt
    while bad > 1.01 * good:
        middle = 0.5 * (good + bad)
        grows = spectral_radius(name, middle, explicit, implicit) > 1.001
        good, bad = (good, middle) if grows else (middle, bad)
    return good


def transport(size=24, diffusion=0.005, periodic=True):
    """Central differences of -u_x and of k u_xx; if periodic, both are normal and commute."""
    shift = np.roll(np.eye(size), 1, axis=0) if periodic else np.eye(size, k=-1)
    explicit = 0.5 * size * (shift - shift.T)
    return explicit, diffusion * size**2 * (shift + shift.T - 2.0 * np.eye(size))


class Counted:
    """An operator of a user's that counts its products."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.dtype, self.products = matrix, matrix.shape, matrix.dtype, 0

    def matvec(self, x, out=None):
        self.products += 1
        return np.dot(self.matrix, x, out=out)


def linear(explicit, implicit, initial=None, dtype=np.float64, source=0.0):
    """u' = (E + I) u + s, of which an IMEX method solves I u."""
    whole, implicit = (explicit + implicit).astype(dtype), implicit.astype(dtype)
    operators = Counted(whole), Counted(implicit)
    size = len(whole)
    if initial is None:
        initial = np.exp(-(np.linspace(-4.0, 4.0, size) ** 2))

    def rhs(t, u, out):
        operators[0].matvec(u, out=out)
        out += source

    return SimpleNamespace(
        initial=np.asarray(initial, dtype),
        rhs=rhs,
        operator=operators[0],
        implicit_operator=operators[1],
    )


def products(problem):
    return problem.operator.products + problem.implicit_operator.products


def step_told(error):
    """The largest stable dt in an error's text."""
    return float(str(error.value).split("take dt <= ")[1].split(",")[0])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("imex-euler", np.float32),
        ("ark2", np.complex128),
        ("ark3", np.float64),
        ("ark3", np.float32),
    ],
)
def test_a_step_beyond_the_limit_is_refused_with_the_largest_one(name, dtype):
    parts = transport()
    limit = limit_of(name, *parts)
    problem = linear(*parts, dtype=dtype)
    for factor in (1.3, 4.0):
        dt = factor * limit
        with pytest.raises(ValueError, match=f"{name} is not stable.*allow_unstable=True") as error:
            evolve(problem, until=100 * dt, method=name, dt=dt)
        told = step_told(error)
        assert 0.85 * limit < told <= 1.01 * limit
        result = evolve(problem, until=100 * told, method=name, dt=told)
        assert result.status is EvolveStatus.COMPLETED
        assert np.linalg.norm(result.u) < 1.01 * np.linalg.norm(problem.initial)


@pytest.mark.parametrize(
    ("level", "method", "dt", "until"),
    [(4, "ark2", 0.02, 1.0), (3, "imex-euler", 0.05, 2.0), (2, "ark3", 1.2, 24.0)],
)
def test_transport_and_diffusion_of_the_gallery(level, method, dt, until):
    problem = problems.make("advection-diffusion-2d", level=level)
    with pytest.raises(ValueError, match=f"{method} is not stable") as error:
        evolve(problem, until=until, method=method, dt=dt)
    result = evolve(problem, until=until, method=method, dt=step_told(error))
    assert result.status is EvolveStatus.COMPLETED
    assert problem.l2_error(result.u, result.t) < 0.05


def test_weak_diffusion_in_one_dimension():
    x = Axis("x", 0.0, 1.0)
    pde = PDE(
        axes=[x],
        terms=[div(x, -1.0), div(x, 1e-3) @ grad(x)],
        initial=Separable(x=lambda s: np.exp(-50.0 * (s - 0.3) ** 2)),
        boundary=Periodic(),
    )
    problem = pde.discretize(3, 2, method="ark3", dt=0.05, until=2.0)
    with pytest.raises(ValueError, match="ark3 is not stable") as error:
        evolve(problem, until=2.0)
    result = evolve(problem, until=2.0, dt=step_told(error))
    assert np.linalg.norm(result.u) < np.linalg.norm(problem.initial)


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("name", IMEX)
def test_parts_whose_eigenvalues_are_all_zero(name, size):
    """u' = k v, v' = -k u, one of them implicit: the parts do not commute."""
    k = np.diag(np.linspace(1.0, 10.0, size)) if size > 1 else np.array([[10.0]])
    zero = np.zeros_like(k)
    explicit, implicit = np.block([[zero, k], [zero, zero]]), np.block([[zero, zero], [-k, zero]])
    limit = limit_of(name, explicit, implicit)
    problem = linear(explicit, implicit, initial=np.ones(2 * size))
    dt = 1.5 * limit
    with pytest.raises(ValueError, match=f"{name} is not stable") as error:
        evolve(problem, until=200 * dt, method=name, dt=dt)
    told = step_told(error)
    assert told > 0.8 * limit
    growth = spectral_radius(name, told, explicit, implicit) ** (200 * dt / told)
    assert growth < 2.01
    result = evolve(problem, until=100 * limit, method=name, dt=0.75 * limit)
    assert result.status is EvolveStatus.COMPLETED


@pytest.mark.parametrize("name", IMEX)
def test_the_check_of_a_short_step_is_cheap_and_remembered(name):
    parts = transport(40 + IMEX.index(name), diffusion=0.001, periodic=False)
    dt = 0.5 * limit_of(name, *parts)
    counts = []
    for allow_unstable in (True, False, False):
        problem = linear(*parts)
        problem.is_linear = True
        options = {"until": 64 * dt, "method": name, "dt": dt, "allow_unstable": allow_unstable}
        result = evolve(problem, **options)
        assert result.status is EvolveStatus.COMPLETED
        counts.append(products(problem))
    assert counts[1] - counts[0] == 60  # and no step is compared with half steps
    assert counts[2] - counts[0] == 2


def test_the_check_of_a_long_step_costs_a_tenth_of_the_run():
    """Here pairs of eigenvalues allow 0.02 of the largest stable step; the step itself decides."""
    parts = transport(diffusion=0.3)
    dt = 0.5 * limit_of("ark3", *parts)
    counts = []
    for allow_unstable in (True, False):
        problem = linear(*parts)
        options = {"until": 240 * dt, "method": "ark3", "dt": dt, "allow_unstable": allow_unstable}
        assert evolve(problem, **options).status is EvolveStatus.COMPLETED
        counts.append(products(problem))
    assert counts[1] < 1.25 * counts[0]  # with the steps that are compared with half steps


def test_what_is_not_refused():
    parts = transport()
    problem, dt = linear(*parts), 2.0 * limit_of("ark3", *parts)
    kept = evolve(problem, until=4 * dt, method="ark3", dt=dt, allow_unstable=True)
    assert kept.status is EvolveStatus.COMPLETED
    assert evolve(problem, until=1.0, method="ark3", dt=dt, rtol=1e-3).rejected > 0
    whole = SimpleNamespace(initial=problem.initial, rhs=problem.rhs, operator=problem.operator)
    assert evolve(whole, until=10 * dt, method="ark3", dt=dt).status is EvolveStatus.COMPLETED
    assert evolve(problem, until=0.0, method="ark3", dt=dt).steps == 0


@pytest.mark.parametrize("name", IMEX)
def test_growth_of_the_solution_is_no_instability(name):
    """All modes grow by exp(8 t), which the implicit part brings, and is not resolved well."""
    explicit, implicit = transport()
    problem = linear(explicit, implicit + 8.0 * np.eye(len(explicit)))
    dt = 0.5 * limit_of(name, explicit, implicit)
    result = evolve(problem, until=100 * dt, method=name, dt=dt)
    assert result.status is EvolveStatus.COMPLETED


def test_sources_and_problems_without_an_operator():
    parts = transport()
    dt = 2.0 * limit_of("ark2", *parts)
    options = {"until": 100 * dt, "method": "ark2", "dt": dt}
    texts = set()
    for source in (0.0, 1e6):
        problem = linear(*parts, source=source)
        with pytest.raises(ValueError, match="ark2 is not stable") as error:
            evolve(problem, **options)
        texts.add(str(error.value))
        alone = SimpleNamespace(
            initial=problem.initial, rhs=problem.rhs, implicit_operator=problem.implicit_operator
        )
        with pytest.raises(ValueError, match="ark2 is not stable") as error:
            evolve(alone, **options)
        assert step_told(error) == pytest.approx(0.5 * dt, rel=0.15)
        assert evolve(alone, until=20 * dt, method="ark2", dt=0.3 * dt).status == "completed"
    assert len(texts) == 1


def test_a_resumed_run_is_checked(tmp_path):
    parts = transport()
    problem, dt = linear(*parts), 2.0 * limit_of("ark2", *parts)
    path = tmp_path / "run.h5"
    options = {"until": 50 * dt, "method": "ark2"}
    evolve(
        problem,
        **options,
        dt=dt,
        checkpoint=path,
        callback=lambda state: state.step == 3,
        allow_unstable=True,
    )
    with pytest.raises(ValueError, match="ark2 is not stable"):
        evolve(problem, **options, resume=path)


def test_ranks_refuse_together():
    problem = problems.make("advection-diffusion-2d", level=2, degree=1)
    implicit = problem.implicit_operator_at(0.0).to_dense()
    limit = limit_of("imex-euler", problem.operator.to_dense() - implicit, implicit)
    dt, options = 2.0 * limit, {"until": 30 * limit, "method": "imex-euler"}

    def run(communicator):
        part = distribute(problem, communicator)
        with pytest.raises(ValueError, match="imex-euler is not stable") as error:
            evolve(part, dt=dt, **options)
        return step_told(error)

    first, second = simulate(2, run)
    assert first == second
    assert 0.8 * limit < first < 1.03 * limit


def test_kinetic_problems_are_watched_but_not_refused():
    problem = problems.make("relaxation-1x1v", level=3, degree=2)
    result = evolve(problem, until=0.004, method="ark3", dt=5e-4)
    assert result.status is EvolveStatus.COMPLETED


def test_an_explicit_part_that_grows_between_the_checks_is_seen_during_the_run():
    explicit, implicit = transport()
    dt = 0.6 * limit_of("ark2", explicit, implicit)
    until = 400 * dt

    def factor(t):
        return 1.0 + 4.0 * np.exp(-(((t / until - 0.25) / 0.05) ** 2))

    def whole(t):
        return factor(t) * explicit + implicit

    problem = SimpleNamespace(
        initial=np.exp(-(np.linspace(-4.0, 4.0, len(explicit)) ** 2)),
        rhs=lambda t, u, out: np.dot(whole(t), u, out=out),
        operator_at=whole,
        implicit_operator=implicit,
    )
    result = evolve(problem, until=until, method="ark2", dt=dt)
    assert result.status is EvolveStatus.UNSTABLE
    assert "half its length" in result.message
