"""What `evolve` is given: problems, operators, matrices and functions f(t, u)."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import dense_batch, random_array
from scipy.linalg import expm
from scipy.sparse import csr_array

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import gallery, make, time
from batchkron.solvers import ResumeWarning, Run, evolve
from batchkron.storage import load_checkpoint

RUN = {"until": 0.3, "method": "rk4", "dt": 0.01}


def a_list(rng, dtype="float64", blocks=4, shapes=((3, 3), (2, 2))):
    """A batch list, and its matrix."""
    pools = [random_array(rng, (3, *shape), dtype) for shape in shapes]
    ids = rng.integers(0, 3, (12, len(shapes)))
    places = rng.integers(0, blocks, (2, 12))
    counts = {"num_inputs": blocks, "num_outputs": blocks}
    weights = np.full(12, 0.2, dtype)
    op = bk.BatchedKron(pools, ids, *places, weights=weights, **counts)
    matrix, _ = dense_batch(pools, ids, *places, weights, blocks, blocks)
    return op, matrix


def error_of_rk4(matrix, length=0.3, dt=0.01):
    """A bound of the error of RK4 relative to the state, for u' = A u: (dt |A|)^4 t |A| / 120."""
    size = np.linalg.norm(matrix, 2)
    return (dt * size) ** 4 * length * size * np.exp(length * size) / 120


def test_a_list_is_its_own_problem(rng, dtype):
    op, matrix = a_list(rng, dtype)
    u0 = random_array(rng, (4, 6), dtype)
    result = evolve(op, u0=u0, **RUN)
    assert (result.u.dtype, result.u.shape) == (np.dtype(dtype), (24,))
    expected = expm(0.3 * matrix.astype("complex128")) @ u0.ravel()
    scale = np.linalg.norm(expected) + np.linalg.norm(u0)
    rounding = 1e3 * np.finfo(dtype).eps
    assert np.linalg.norm(result.u - expected) < (error_of_rk4(matrix) + rounding) * scale


@pytest.mark.parametrize("shape", [(24,), (4, 6), (4, 3, 2)])
def test_vectors_are_flat_or_in_blocks(rng, shape):
    op, _ = a_list(rng)
    u0, s = rng.standard_normal((2, 24))
    flat = evolve(op, u0=u0, source=s, **RUN)
    weights = {"sum": np.ones(shape)}
    result = evolve(op, u0=u0.reshape(shape), source=s.reshape(shape), watch=weights, **RUN)
    assert result.u.tobytes() == flat.u.tobytes()
    assert result.watched["sum"].last == pytest.approx(flat.u.sum())
    expected = r"\(24,\) or \(4, 3, 2\) or \(4, 6\)"
    with pytest.raises(ValueError, match=rf"has shape \(6, 4\); expected {expected}"):
        evolve(op, u0=u0.reshape(6, 4), **RUN)
    with pytest.raises(ValueError, match=r"source has shape \(12,\)"):
        evolve(op, u0=u0, source=s[:12], **RUN)


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 2)])
def test_sums_and_multiples_of_lists_take_their_blocks(rng, shape):
    op, _ = a_list(rng)
    other = a_list(rng, blocks=3, shapes=((8, 8),))[0]
    u0 = rng.standard_normal(24)
    for whole in (-2 * op, op - bk.Identity(24), op.T + 3 * (op + bk.Diagonal(u0))):
        flat = evolve(whole, u0=u0, **RUN)
        assert evolve(whole, u0=u0.reshape(shape), **RUN).u.tobytes() == flat.u.tobytes()
    with pytest.raises(ValueError, match=r"expected \(24,\)$"):  # of two shapes it is neither
        evolve(op + other, u0=u0.reshape(shape), **RUN)


def test_sources_in_all_forms(rng):
    """u' = A u + cos(2 t) v, next to RK4 by hand."""
    op, matrix = a_list(rng)
    u0, v = rng.standard_normal((2, 24))

    def write(t, out):
        out[...] = np.cos(2 * t) * v

    u, dt = u0.copy(), 0.01
    for step in range(30):
        t = step * dt
        f = lambda t, u: matrix @ u + np.cos(2 * t) * v  # noqa: E731
        k1 = f(t, u)
        k2 = f(t + dt / 2, u + dt / 2 * k1)
        k3 = f(t + dt / 2, u + dt / 2 * k2)
        u = u + dt / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + dt, u + dt * k3))
    pairs = (time.cos(2.0), v)
    for source in (write, lambda t: np.cos(2 * t) * v, pairs, [pairs, (time.constant(0.0), v)]):
        result = evolve(op, u0=u0, source=source, **RUN)
        assert np.abs(result.u - u).max() < 1e-12 * np.abs(u).max()
    fixed = evolve(op, u0=u0, source=v, **RUN)
    same = evolve(op, u0=u0, source=[(lambda t: 1.0, v)], **RUN)
    assert fixed.u.tobytes() == same.u.tobytes()


@pytest.mark.parametrize(
    "method", ["backward-euler", "crank-nicolson", "ark2", "exponential-euler"]
)
def test_implicit_methods_have_the_operator(rng, method):
    op, _ = a_list(rng)
    u0, s = rng.standard_normal((2, 24))
    run = {"until": 0.3, "method": method, "dt": 0.02}
    result = evolve(op, u0=u0, source=s, **run)
    whole = SimpleNamespace(initial=u0, operator=op, rhs=lambda t, u, out: rhs(u, out))

    def rhs(u, out):
        out[...] = op @ u + s

    expected = evolve(whole, **run)
    assert np.abs(result.u - expected.u).max() < 1e-7 * np.abs(expected.u).max()


def test_every_operator_and_matrix(rng):
    A, B = rng.standard_normal((2, 4, 4))
    u0 = rng.standard_normal(16)
    total = np.kron(A, np.eye(4)) + np.kron(np.eye(4), B)
    grid = make("diffusion-2d", level=2, degree=1)
    for given, start in [
        (bk.KroneckerProduct([A, B]), u0.reshape(4, 4)),
        (bk.KroneckerSum([A, B]), u0),
        (2.0 * bk.KroneckerSum([A, B]) - bk.Identity(16), u0),
        (bk.KroneckerSparse(rng.standard_normal((2, 4, 4, 2))), u0),
        (grid.operator, grid.initial),
        (grid.operator, grid.initial.reshape(-1, grid.block_size)),
        (total, u0),
        (csr_array(total), u0),
        (SimpleNamespace(operator=bk.KroneckerSum([A, B])), u0),
        (SimpleNamespace(operator=csr_array(total)), u0),
    ]:
        operator = getattr(given, "operator", given)
        matrix = operator.to_dense() if isinstance(operator, bk.Operator) else total
        result = evolve(given, u0=start, until=0.02, method="rk4", dt=1e-4)
        expected = expm(0.02 * matrix) @ np.ravel(start)
        scale = np.linalg.norm(expected) + np.linalg.norm(start)
        assert np.linalg.norm(result.u - expected) < 1e-9 * scale


def test_an_object_with_an_operator_keeps_its_time_and_step(rng):
    op, _ = a_list(rng)
    stepper = SimpleNamespace(method="rk4", dt=0.01)
    given = SimpleNamespace(operator=op, initial=rng.standard_normal(24), t0=1.0, stepper=stepper)
    result = evolve(given, until=1.3)
    assert (result.t, result.steps) == (1.3, 30)
    expected = evolve(op, u0=given.initial, **RUN).u  # whose steps differ in their last bits
    assert np.abs(result.u - expected).max() < 1e-13 * np.abs(expected).max()


def test_functions_return_or_write(rng):
    op, _ = a_list(rng)
    u0 = 0.1 * rng.standard_normal((4, 6))

    def returned(t, u):
        assert u.shape == (4, 6)
        return op.apply(u) - u**3

    def written(t, u, out):
        op.apply(u, out=out)
        out -= u**3

    def named(t, u, out=None):
        written(t, u, out)

    problem = SimpleNamespace(
        initial=u0.ravel(), rhs=lambda t, u, out: written(t, u.reshape(4, 6), out.reshape(4, 6))
    )
    expected = evolve(problem, **RUN)
    for function in (returned, written, named):
        assert evolve(function, u0=u0, **RUN).u.tobytes() == expected.u.tobytes()
    flat = evolve(lambda t, u: op.apply(u) - u**3, u0=u0.ravel(), **RUN)
    assert flat.u.tobytes() == expected.u.tobytes()


def test_the_dtype_of_states(rng):
    op, _ = a_list(rng)
    single, _ = a_list(rng, "float32")
    u0 = rng.integers(1, 9, 24)
    assert evolve(op, u0=u0, **RUN).u.dtype == np.float64
    assert evolve(op, u0=u0.astype("complex64"), **RUN).u.dtype == np.complex128
    assert evolve(single, u0=u0.astype("float32"), **RUN).u.dtype == np.float32
    assert evolve(lambda t, u: -u, u0=[1, 2], **RUN).u.dtype == np.float64
    with pytest.raises(TypeError, match="source has dtype complex128; expected real numbers"):
        evolve(op, u0=u0, source=1j * u0, **RUN)


def test_checkpoints_know_their_operator(rng, tmp_path):
    op, _ = a_list(rng)
    u0, path = rng.standard_normal(24), tmp_path / "run.h5"
    whole = evolve(op, u0=u0, **RUN)
    evolve(op, u0=u0, until=0.1, method="rk4", dt=0.01, checkpoint=path)
    resumed = evolve(op, u0=u0, until=0.3, resume=path)
    assert resumed.u.tobytes() == whole.u.tobytes()
    other, _ = a_list(np.random.default_rng(5))
    with pytest.raises(ValueError, match="problem"):
        evolve(other, u0=u0, until=0.3, resume=path)
    with pytest.raises(ValueError, match="problem"):
        evolve(op, u0=u0, source=u0, until=0.3, resume=path)


def test_what_does_not_belong_together_is_refused(rng):
    op, _ = a_list(rng)
    u0 = rng.standard_normal(24)
    problem = SimpleNamespace(initial=u0, rhs=lambda t, u, out: np.copyto(out, u))
    for error, text, given, options in [
        (ValueError, "u0 is missing: an operator", op, {}),
        (ValueError, "u0 is missing: a function", lambda t, u: u, {}),
        (TypeError, "source is the s", problem, {"source": u0}),
        (TypeError, "add it inside", lambda t, u: u, {"u0": u0, "source": u0}),
        (TypeError, "expected an operator of batchkron", SimpleNamespace(operator=7), {"u0": u0}),
        (TypeError, "expected an object with initial", 7, {}),
        (ValueError, "expected a square one", op.T @ bk.Identity(24), {"u0": u0[:3]}),
        (TypeError, r"f\(t, u\) returned None", lambda t, u: None, {"u0": u0}),
        (ValueError, r"f\(t, u\) has shape \(3,\)", lambda t, u: u[:3], {"u0": u0}),
        (TypeError, "begin with a complex state", lambda t, u: 1j * u, {"u0": u0}),
        (TypeError, "entry 1 of the source", op, {"u0": u0, "source": [(np.cos, u0), u0]}),
    ]:
        if text == "expected a square one":
            given = bk.BatchedKron(np.ones((1, 2, 2)), [[0]], [0], [1])
        with pytest.raises(error, match=text):
            evolve(given, **options, **RUN)


def test_an_operator_on_ranks(rng):
    whole = bk.KroneckerSum([rng.standard_normal((4, 4)), rng.standard_normal((4, 4))])
    u0 = rng.standard_normal(16)

    def program(comm):
        op = distribute(whole, comm)
        result = evolve(op, u0=op.scatter(u0), **RUN)
        return op.gather(result.u)

    expected = evolve(whole, u0=u0, **RUN)
    for found in simulate(2, program):
        assert np.abs(found - expected.u).max() < 1e-13 * np.abs(expected.u).max()


def test_a_rhs_of_two_arguments_returns_its_value(rng):
    matrix = -np.diag(np.arange(1.0, 4.0))
    writes = SimpleNamespace(
        initial=rng.standard_normal(3), rhs=lambda t, u, out: np.matmul(matrix, u, out=out)
    )
    returns = SimpleNamespace(initial=writes.initial, rhs=lambda t, u: matrix @ u, is_linear=True)
    expected = evolve(writes, **RUN).u
    assert evolve(returns, **RUN).u.tobytes() == expected.tobytes()
    started = evolve(returns, u0=2.0 * writes.initial, **RUN).u
    np.testing.assert_allclose(started, 2.0 * expected, rtol=1e-13)
    implicit = SimpleNamespace(**vars(returns), operator=matrix)
    found = evolve(implicit, until=0.3, method="crank-nicolson", dt=1e-3).u
    np.testing.assert_allclose(found, expm(0.3 * matrix) @ writes.initial, rtol=1e-5)


def test_other_signatures_of_rhs(rng):
    initial = rng.standard_normal(3)

    def many(*args):
        _, u, out = args
        np.negative(u, out=out)

    def optional(t, u, out=None):
        assert out is not None
        np.negative(u, out=out)

    for rhs in (many, optional):
        result = evolve(SimpleNamespace(initial=initial, rhs=rhs), **RUN)
        np.testing.assert_allclose(result.u, np.exp(-0.3) * initial, rtol=1e-8)
    nothing = SimpleNamespace(initial=initial, rhs=lambda t, u: None)
    with pytest.raises(TypeError, match=r"problem\.rhs\(t, u\) returned None"):
        evolve(nothing, **RUN)


def test_a_pde_says_that_it_has_to_be_discretized():
    entry = gallery.get("continuity-1d")
    with pytest.raises(TypeError, match=r"problem is a PDE.*call pde\.discretize\(level\)"):
        evolve(entry.pde, **RUN)


def test_until_is_that_of_the_problem(tmp_path):
    problem = make("continuity-1d", level=3, degree=1, until=0.25, dt=0.05)
    result = evolve(problem, checkpoint=tmp_path / "end.h5")
    assert (result.t, result.steps) == (0.25, 5)
    evolve(problem, until=0.1, checkpoint=tmp_path / "middle.h5")
    assert evolve(problem, resume=tmp_path / "middle.h5").t == 0.1
    with pytest.raises(ValueError, match="until is missing, and the problem suggests none"):
        evolve(-np.eye(2), u0=np.ones(2), method="rk4", dt=0.1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("t_eval", "at"), ("y0", "u0"), ("metod", "method"), ("check_point", "checkpoint")],
)
def test_misspelt_arguments(name, meant):
    text = rf"evolve\(\) has no argument '{name}'; did you mean {meant}\b"
    with pytest.raises(TypeError, match=text):
        evolve(-np.eye(2), **{name: 1}, **RUN)
    with pytest.raises(TypeError, match=text.replace("evolve", "Run")):
        Run(-np.eye(2), **{name: 1}, **RUN)


def test_an_argument_like_no_other():
    with pytest.raises(TypeError, match="no argument 'zzz'; it has problem, until, method"):
        evolve(-np.eye(2), zzz=1, **RUN)


@pytest.mark.parametrize("start", [evolve, Run, lambda *given, **named: Run(*given, **named)])
def test_warnings_of_a_resumed_run_point_to_the_users_line(start, tmp_path):
    problem = make("continuity-1d", level=2, degree=1)
    path = tmp_path / "run.h5"
    evolve(problem, until=0.01, checkpoint=path)
    checkpoint = replace(load_checkpoint(path), version="0.0.9")
    with pytest.warns(ResumeWarning) as caught:
        start(problem, until=0.01, resume=checkpoint)
    assert [warning.filename for warning in caught] == [__file__]
