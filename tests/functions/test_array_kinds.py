"""Arrays of other libraries: results of the caller's kind, with the bits of NumPy's arrays."""

import array_api_compat
import array_api_strict
import numpy as np
import pytest
from foreign_arrays import MAKERS, jax_array, torch_tensor

import batchkron as bk
from batchkron import array_kinds


@pytest.fixture(params=MAKERS)
def convert(request):
    """Makes arrays of a kind of NumPy's."""
    return MAKERS[request.param]


def product(make):
    return bk.KroneckerProduct([make(np.diag([2.0, 3.0])), make(np.ones((2, 2)) + np.eye(2))])


def total(make):
    return bk.KroneckerSum([make(np.diag([2.0, 3.0])), make(np.ones((2, 2)) + np.eye(2))])


def blocks(make):
    return bk.BatchedKron(
        make(np.arange(1.0, 9.0).reshape(2, 2, 2)), make(np.array([[0, 1], [1, 0]])), [0, 0], [0, 1]
    )


def shifted(make):
    return product(make) + 2.0 * bk.Identity(4)


def systems(make):
    return bk.KroneckerSum(
        [make(np.stack([np.eye(2), np.ones((2, 2))])), make(np.diag([2.0, 3.0]))]
    )


def skew(make):
    """A sum that is solved by Schur forms."""
    return bk.KroneckerSum([make(np.array([[2.0, 1.0], [0.5, 3.0]])), make(np.eye(2))])


POINTS = np.array([[0.5, 0.1], [0.0, 1.0], [0.3, 0.7], [0.9, 0.2]])
GRID = bk.RegularGrid(0.0, 1.0, sizes=(4, 5))


def interpolated(make):
    return bk.InterpolatedKronecker(
        make(POINTS),
        GRID,
        [make(np.diag(np.arange(1.0, 5.0))), make(np.array([2.0, 1.0, 0.5, 0.25, 0.0]))],
        noise=make(np.array([0.5, 1.0, 2.0, 0.25])),
    )


def replaced(make):
    """An interpolated product with other points, factors and noise."""
    op = interpolated(make)
    op.update(
        points=make(1 - POINTS),
        factors=[make(np.eye(4) + 1), make(np.arange(5.0, 0.0, -1))],
        noise=make(np.arange(4.0)),
    )
    return op


# what is called with a function that makes arrays of the kind, and a vector (4,) of it
CALLS = {
    "gekmm": lambda m, x: bk.gekmm([m(np.eye(2) + 1), m(np.eye(2))], x, alpha=2),
    "gemkm": lambda m, x: bk.gemkm(x, [m(np.eye(2) + 1), m(np.eye(2))], transpose=True),
    "gemkm, one array": lambda m, x: bk.gemkm(x, m(np.arange(8.0).reshape(2, 2, 2))),
    "beta": lambda m, x: bk.gekmm([m(np.eye(4) + 1)], x, beta=2, y=m(np.arange(4.0))),
    "kron": lambda m, x: bk.kron(m(np.eye(2) + 1), m(np.arange(4.0).reshape(2, 2))),
    "kron, a list": lambda m, x: bk.kron([m(np.eye(2) + 1), m(np.ones((1, 3)))]),
    "batched_gemm": lambda m, x: bk.batched_gemm(
        m(np.arange(8.0).reshape(2, 2, 2)), m(np.ones((1, 2, 3))), b_ids=[0, 0]
    ),
    "batched_kron": lambda m, x: bk.batched_kron(
        m(np.arange(4.0).reshape(1, 2, 2)), [[0, 0]], m(np.arange(4.0)[None]), [0], [0], x[None, :]
    ),
    "kronecker_sparse_multiply": lambda m, x: bk.kronecker_sparse_multiply(
        m(np.arange(8.0).reshape(1, 2, 2, 2)), x
    ),
    "linear_combination": lambda m, x: bk.linear_combination([2.0], [m(np.arange(4.0))], x),
    "segments": lambda m, x: bk.SegmentedModeMultiply(
        m(np.arange(4.0).reshape(1, 2, 2)), [0, 1], [0], [0], before=1, behind=2
    ).apply(x[None, :]),
    "apply": lambda m, x: product(m).apply(x),
    "matvec": lambda m, x: product(m).matvec(x),
    "matmat": lambda m, x: product(m).matmat(x[:, None]),
    "rmatvec": lambda m, x: product(m).rmatvec(x),
    "@": lambda m, x: product(m) @ x,
    "*": lambda m, x: (2 * product(m) + total(m)).dot(x),
    "accumulate": lambda m, x: product(m).accumulate(m(np.arange(4.0)), x),
    "solve": lambda m, x: product(m).solve(x),
    "solve a sum": lambda m, x: total(m).solve(x),
    "expm_apply": lambda m, x: total(m).expm_apply(x, 0.5),
    "expm_apply of a product": lambda m, x: product(m).expm_apply(x, 0.5),
    "solve a shifted product": lambda m, x: shifted(m).solve(x),
    "factors of a shifted product": lambda m, x: shifted(m).factorise().solve(x),
    "expm_apply of a shifted product": lambda m, x: shifted(m).expm_apply(x, 0.5),
    "exponential": lambda m, x: shifted(m).factorise().exponential(x, 0.5),
    "factors of a sum": lambda m, x: total(m).factorise().solve(x, 0.5),
    "shifts": lambda m, x: total(m).factorise().solve_shifted(x, [0.5, 1.0]),
    "array of shifts": lambda m, x: skew(m).factorise().solve_shifted(x, m(np.array([0.5, 1.0]))),
    "factors of systems": lambda m, x: systems(m).factorise().solve(m(np.ones((2, 4))), 0.5),
    "shifts of systems": lambda m, x: (
        systems(m).factorise().solve_shifted(m(np.ones((2, 4))), m(np.array([0.5, 1.0])))
    ),
    "phi_apply": lambda m, x: total(m).phi_apply([x, None, m(np.arange(4.0))], 0.5),
    "eigh": lambda m, x: total(m).eigh()[1] @ x,
    "eigh of a shifted product": lambda m, x: bk.eigh(shifted(m))[1].H @ x,
    "interpolated": lambda m, x: interpolated(m).apply(x),
    "updated interpolated": lambda m, x: replaced(m) @ x,
    "cross": lambda m, x: interpolated(m).cross(m(POINTS[:2])) @ x,
    "interpolation": lambda m, x: bk.Interpolation(m(POINTS), GRID).T @ x,
    "blocks": lambda m, x: blocks(m).apply(x[None, :]),
    "added blocks": lambda m, x: blocks(m).accumulate(m(np.ones((1, 4))), m(np.ones((2, 4)))),
    "sparse": lambda m, x: bk.KroneckerSparse(m(np.arange(8.0).reshape(1, 2, 2, 2))).apply(x),
    "chain": lambda m, x: bk.KroneckerSparseChain([m(np.ones((1, 2, 2, 2)))]).apply(x),
    "diagonal": lambda m, x: bk.Diagonal(m(np.arange(4.0))).apply(x),
}
WRITTEN = {"batched_kron", "linear_combination", "accumulate", "added blocks"}  # to the caller's


@pytest.mark.parametrize("name", CALLS)
def test_results_are_of_the_kind_and_have_numpys_bits(convert, name):
    expected = CALLS[name](np.array, np.array([1.0, -2.0, 0.5, 3.0]))
    x = convert(np.array([1.0, -2.0, 0.5, 3.0]))
    if name in WRITTEN and convert is jax_array:  # JAX lets nobody write
        with pytest.raises(ValueError, match="read-only"):
            CALLS[name](convert, x)
        return
    result = CALLS[name](convert, x)
    assert type(result) is type(x)
    assert np.array_equal(np.from_dlpack(result), expected)
    compat = array_api_compat.array_namespace(result)
    assert compat is array_api_compat.array_namespace(x)


@pytest.mark.parametrize("make", [product, total, shifted, systems])
def test_determinants_are_those_of_numpys_arrays(convert, make):
    found, expected = make(convert), make(np.array)
    assert np.array_equal(found.slogdet(), expected.slogdet())
    assert np.array_equal(found.logdet(), expected.logdet())


def test_outputs_are_written_where_the_caller_says():
    factors = [torch_tensor(np.eye(2) + 1)] * 2
    x, out = torch_tensor(np.arange(4.0)), torch_tensor(np.full(4, np.nan))
    assert bk.gemkm(x, factors, out=out) is out
    assert np.array_equal(out.numpy(), bk.gemkm(np.arange(4.0), [np.eye(2) + 1] * 2))
    out.fill_(float("nan"))
    op = bk.KroneckerProduct(factors)
    assert op.apply(x, out) is out
    assert np.array_equal(out.numpy(), op.apply(np.arange(4.0)))


def test_reading_copies_nothing():
    x = torch_tensor(np.arange(4.0))
    view = array_kinds.native(x, "x")
    x[1] = 7.0
    assert view[1] == 7.0
    strict = array_api_strict.asarray(np.arange(4.0))
    view = array_kinds.native(strict, "x")
    strict[1] = 7.0
    assert view[1] == 7.0


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda m: bk.gemkm(m(np.ones(4)), [np.eye(4)]), "factors[0] is a NumPy array, but x is a"),
        (lambda m: bk.gemkm(np.ones(4), [m(np.eye(4))]), "but x is a NumPy array"),
        (lambda m: bk.gekmm([m(np.eye(4))], m(np.ones(4)), out=np.ones(4)), "out is a NumPy array"),
        (lambda m: bk.kron(m(np.eye(2)), np.eye(2)), "but factors[1] is a NumPy array"),
        (lambda m: bk.batched_gemm(m(np.ones((1, 1, 1))), np.ones((1, 1, 1))), "but b is a NumPy"),
        (lambda m: bk.kronecker_sparse_multiply(m(np.ones((1, 1, 1, 1))), np.ones(1)), "but x is"),
        (
            lambda m: bk.batched_kron(
                m(np.ones((1, 1, 1))), [[0]], np.ones((1, 1)), [0], [0], np.ones((1, 1))
            ),
            "but x is a NumPy array",
        ),
        (
            lambda m: bk.KroneckerProduct([np.eye(2)]).apply(m(np.ones(2)), np.ones(2)),
            "but out is a NumPy array",
        ),
        (lambda m: bk.linear_combination([1.0], [m(np.ones(2))], np.ones(2)), "out is a NumPy"),
        (
            lambda m: skew(np.array).factorise().solve_shifted(m(np.ones(4)), np.ones(1)),
            "but shifts is a NumPy array",
        ),
        (
            lambda m: skew(np.array).phi_apply([np.ones(4), None, m(np.ones(4))]),
            "vectors[0] is a NumPy array, but vectors[2] is a",
        ),
        (
            lambda m: bk.linear_combination([1.0], [np.ones(2)], m(np.ones(2))),
            "vectors[0] is a Num",
        ),
        (lambda m: bk.Diagonal(np.ones(2)).accumulate(m(np.ones(2)), np.ones(2)), "NumPy array"),
    ],
)
def test_mixed_calls_name_both_kinds(convert, call, names):
    kind = array_kinds.kind_of(convert(np.ones(1)))
    with pytest.raises(TypeError) as error:
        call(convert)
    assert names in str(error.value)
    assert kind.name in str(error.value)


def test_lists_and_numbers_go_with_any_kind(convert):
    result = bk.gemkm([1.0, 2.0], [convert(np.eye(2))])
    assert type(result) is type(convert(np.ones(1)))
    assert np.array_equal(np.from_dlpack(result), [1.0, 2.0])


@pytest.mark.parametrize("call", [lambda x: bk.gemkm(x, [x[:, None]]), lambda x: bk.Diagonal(x)])
def test_gradients_are_not_lost_in_silence(call):
    torch = pytest.importorskip("torch")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(TypeError, match=r"requires a gradient.*batchkron\.torch.*detach\(\)"):
        call(x)
    with torch.no_grad():
        call(x)
    call(x.detach())


def test_parameters_and_conjugates_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0 + 2.0j, 3.0j])
    result = bk.gemkm(x.conj(), [torch.nn.Parameter(torch.eye(2) * 1j, requires_grad=False)])
    assert torch.equal(result, x.conj() * 1j)


def test_numbers_of_16_bits():
    torch = pytest.importorskip("torch")
    half = bk.gemkm(torch.ones(2, dtype=torch.float16), [torch.eye(2, dtype=torch.float16)])
    assert half.dtype == torch.float32  # as of NumPy's arrays on the CPU
    pytest.importorskip("ml_dtypes")
    values = torch.rand(1, 2, 3, 2).bfloat16()
    op = bk.KroneckerSparse(values)
    assert np.array_equal(op.values, values.float().numpy())
    with pytest.raises(TypeError, match="bfloat16"):
        bk.gemkm(torch.ones(2).bfloat16(), [torch.eye(2).bfloat16()])


def test_numpys_fast_paths_do_not_look_for_other_kinds(monkeypatch):
    """Calls that the compiled fast paths take, and operators of their own arrays."""

    def fail(*operands):
        raise AssertionError("looked for other kinds")

    bk.gekmm([np.eye(2)], np.ones(2))  # makes the plans that fast paths use
    bk.gemkm(np.ones((3, 4)), [np.eye(2)] * 2)
    for module in (
        "functions.kron",
        "functions.batched_kron",
        "operators.base",
        "operators.algebra",
    ):
        monkeypatch.setattr(f"batchkron.{module}.any_foreign", fail)
    bk.gekmm([np.eye(2)], np.ones(2))
    bk.gemkm(np.ones((3, 4)), [np.eye(2)] * 2)
    bk.kron(np.eye(2), np.eye(3))
    bk.batched_gemm(np.ones((2, 2, 2)), np.ones((2, 2, 2)))
    zero = np.zeros(1, np.int64)
    x, y = np.ones((1, 2)), np.ones((1, 2))
    bk.batched_kron(np.ones((1, 2, 2)), zero[None], x, zero, zero, y)
    bk.KroneckerProduct([np.eye(2)]).apply(np.ones(2))
    bk.KroneckerProduct([np.eye(2)]) @ np.ones(2)
    bk.KroneckerSum([np.eye(2)]).accumulate(np.ones(2), np.ones(2))
    shifted(np.array).solve(np.ones(4))
    shifted(np.array).expm_apply(np.ones(4))
