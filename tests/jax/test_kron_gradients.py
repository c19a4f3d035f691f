"""Gradients of kron_matmul, which are one primitive, against JAX's own of a chain of einsum."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_checks import assert_same

from batchkron.jax import kron_matmul
from batchkron.jax.kron_primitives import multiply

SHAPES = [(2, 3), (4, 2), (3, 1)]
SUBSETS = [wanted for size in (1, 2, 3, 4) for wanted in itertools.combinations(range(4), size)]
# systems, sets of each factor, outer, inner, transpose
LAYOUTS = [
    (1, (1, 1, 1), 5, 1, False),
    (1, (1, 1, 1), 2, 3, True),
    (3, (3, 1, 3), 2, 2, False),
    (3, (1, 3, 1), 2, 1, True),
    (2, (1, 1, 1), 1, 2, False),
]


def of_all(x, *factors):
    return kron_matmul(x, factors)


def chain(x, *factors, transpose=False):
    """The product of x (systems, outer, ΠP, inner), mode by mode."""
    systems, outer, _, inner = x.shape
    for k, factor in enumerate(factors):
        A = factor.swapaxes(1, 2) if transpose else factor
        A = jnp.broadcast_to(A, (systems, *A.shape[1:]))
        before = outer * math.prod(one.shape[1 if transpose else 2] for one in factors[:k])
        x = jnp.einsum("slpr,spq->slqr", x.reshape(systems, before, A.shape[1], -1), A)
    return x.reshape(systems, outer, -1, inner)


def of_rows(x, *factors):
    """The chain for x (rows, ΠP)."""
    y = chain(x[None, :, :, None], *(factor[None] for factor in factors))
    return y.reshape(len(x), y.shape[2])


def given_for(array, layout, dtype="float64"):
    systems, sets, outer, inner, transpose = layout
    shapes = [shape[::-1] if transpose else shape for shape in SHAPES]
    x = array(systems, outer, 24, inner, dtype=dtype)
    factors = (array(n, *shape, dtype=dtype) for n, shape in zip(sets, shapes, strict=True))
    return x, *factors


def of_some(product, given, wanted):
    """The product as a function of some operands, and these."""

    def function(*values):
        operands = list(given)
        for k, value in zip(wanted, values, strict=True):
            operands[k] = value
        return product(*operands)

    return function, [given[k] for k in wanted]


def compare(found, expected, steps=1000):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_same(one, other, steps)


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_all_subsets(array, layout, dtype):
    given, transpose = given_for(array, layout, dtype), layout[-1]
    cotangent = None
    for wanted in SUBSETS:

        def gradients(product, wanted=wanted):
            function, values = of_some(product, given, wanted)
            return jax.vjp(function, *values)

        y, pull = gradients(lambda *given: multiply(*given, transpose=transpose))
        expected_y, expected_pull = gradients(lambda *given: chain(*given, transpose=transpose))
        assert_same(y, expected_y, 100)
        cotangent = array(*y.shape, dtype=dtype)
        expected = expected_pull(cotangent)
        compare(pull(cotangent), expected)
        compare(jax.jit(pull)(cotangent), expected)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_directions_of_all_subsets(array, layout, dtype):
    given, transpose = given_for(array, layout, dtype), layout[-1]
    directions = given_for(array, layout, dtype)
    for moved in SUBSETS:

        def derivative(product, moved=moved):
            function, values = of_some(product, given, moved)
            return jax.jvp(function, values, [directions[k] for k in moved])

        found = derivative(lambda *given: multiply(*given, transpose=transpose))
        compare(found, derivative(lambda *given: chain(*given, transpose=transpose)))


@pytest.mark.parametrize("compiled", ["jit", "no jit", "disabled"])
def test_ways_of_calling(array, compiled):
    given = [array(5, 24), *(array(*shape) for shape in SHAPES)]

    def found(product):
        def loss(*given):
            return jnp.sin(product(*given)).sum()

        gradient = jax.grad(loss, (0, 1, 3))
        return (jax.jit(gradient) if compiled == "jit" else gradient)(*given)

    expected = found(of_rows)
    if compiled == "disabled":
        with jax.disable_jit():
            compare(found(of_all), expected)
    else:
        compare(found(of_all), expected)


SECOND_ORDERS = {
    "forward over reverse": lambda f, at, along: jax.jvp(jax.grad(f), (at,), (along,)),
    "reverse over forward": lambda f, at, along: jax.grad(
        lambda one: jax.jvp(f, (one,), (along,))[1]
    )(at),
    "reverse over reverse": lambda f, at, along: jax.vjp(jax.grad(f), at)[1](along),
    "forward over forward": lambda f, at, along: jax.jvp(
        lambda one: jax.jvp(f, (one,), (along,))[1], (at,), (along,)
    ),
}


@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (0, 2), (1, 3), (2,)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("order", SECOND_ORDERS)
def test_second_orders(array, order, dtype, wanted):
    shapes = [(5, 24), *SHAPES]
    given, steps = ([array(*shape, dtype=dtype) for shape in shapes] for _ in range(2))
    weights = array(5, 6, dtype=dtype)

    def found(product):
        function, at = of_some(product, given, wanted)

        def loss(values):
            y = weights * function(*values)
            return (y**2 + y).real.sum()

        return SECOND_ORDERS[order](loss, at, [steps[k] for k in wanted])

    compare(found(of_all), found(of_rows), 24 * 1000)


def test_third_order_of_all_operands(array):
    shapes = [(2, 24), *SHAPES]
    given, steps = ([array(*shape) for shape in shapes] for _ in range(2))

    def found(product):
        def hessian_times(values):
            gradient = jax.grad(lambda values: jnp.sin(product(*values)).sum())
            return jax.jvp(gradient, (values,), (steps,))[1]

        return jax.jit(lambda values: jax.vjp(hessian_times, values)[1](steps))(given)

    compare(found(of_all), found(of_rows), 24 * 1000)


MAPPED = [  # the cotangent, x, and factors
    (0, 0, None, None, None),
    (1, None, None, None, None),
    (None, 1, None, None, None),
    (None, None, 0, None, 2),
    (0, 0, 0, 0, 0),
]


@pytest.mark.parametrize("axes", MAPPED)
@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (1, 3), (0, 2), (2,)])
def test_mapped(array, axes, wanted):
    shapes = [(5, 6), (5, 24), *SHAPES]
    given = [
        array(*shape) if axis is None else array(*shape[:axis], 3, *shape[axis:])
        for shape, axis in zip(shapes, axes, strict=True)
    ]

    def found(product):
        def gradients(cotangent, *operands):
            function, values = of_some(product, operands, wanted)
            return jax.vjp(function, *values)[1](cotangent)

        return jax.jit(jax.vmap(gradients, axes))(*given)

    compare(found(of_all), found(of_rows))


def test_directions_that_are_mapped(array):
    given = [array(5, 24), *(array(*shape) for shape in SHAPES)]
    steps = [array(4, *one.shape) for one in given]

    def found(product):
        return jax.vmap(lambda *along: jax.jvp(product, tuple(given), along)[1])(*steps)

    compare(found(of_all), found(of_rows))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_transposes_of_linear_functions(array, layout, dtype):
    """A product in one operand, its derivative in directions or another operand, its gradients."""
    given, steps = (given_for(array, layout, dtype) for _ in range(2))
    transpose = layout[-1]
    y = chain(*given, transpose=transpose)
    cotangent = array(*y.shape, dtype=dtype)

    def found(product):
        def of_steps(*values):
            return jax.jvp(product, tuple(given), values)[1]

        def of_first_steps(*values):
            zeros = [jnp.zeros_like(one) for one in given[2:]]
            return jax.jvp(product, tuple(given), (*values, *zeros))[1]

        def of_x(x):
            return jax.jvp(lambda *rest: product(x, *rest), tuple(given[1:]), tuple(steps[1:]))[1]

        def pulled(cotangent):
            return jax.vjp(product, *given)[1](cotangent)

        all_found = [
            jax.linear_transpose(of_some(product, given, (k,))[0], given[k])(cotangent)
            for k in range(4)
        ]
        all_found.append(jax.linear_transpose(of_steps, *given)(cotangent))
        all_found.append(jax.linear_transpose(of_first_steps, *given[:2])(cotangent))
        all_found.append(jax.linear_transpose(of_x, given[0])(cotangent))
        all_found.append(jax.linear_transpose(pulled, cotangent)(tuple(steps)))
        return all_found

    def einsum_product(*given):
        return chain(*given, transpose=transpose)

    compare(
        found(lambda *given: multiply(*given, transpose=transpose)), found(einsum_product), 2000
    )


@pytest.mark.parametrize("shapes", [[(70, 3), (2, 2)], [(2, 2), (3, 66), (2, 1)], [(65, 1)]])
def test_factors_of_many_rows_or_columns(array, shapes):
    x = array(3, math.prod(shape[0] for shape in shapes))
    given = [x, *(array(*shape) for shape in shapes)]

    def found(product):
        return jax.jit(jax.grad(lambda *given: jnp.sin(product(*given)).sum(), range(len(given))))(
            *given
        )

    compare(found(of_all), found(of_rows))


def primitives_in(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from primitives_in(inner)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((0, 1, 2, 3), ["kron_gradients", "kron_matmul"]),
        ((2,), ["kron_gradients", "kron_matmul"]),
        ((0,), ["kron_matmul", "kron_matmul"]),
    ],
)
def test_gradients_are_one_primitive(array, wanted, expected):
    given = [array(5, 24), *(array(*shape) for shape in SHAPES)]
    gradient = jax.grad(lambda *given: jnp.sin(of_all(*given)).sum(), wanted)
    names = primitives_in(jax.make_jaxpr(gradient)(*given).jaxpr)
    found = sorted(name for name in names if name.startswith("batchkron"))
    assert found == [f"batchkron_{name}" for name in expected]


def calls_on_device(function, *given):
    """The functions that a device's program calls."""
    text = jax.jit(function).trace(*given).lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in text.splitlines() if "@batchkron_planned" in line]
    return sorted(line.split('function = "')[1].split('"')[0] for line in calls), calls


def test_gradients_are_one_call_on_a_device(array):
    given = [array(5, 24), *(array(*shape) for shape in SHAPES)]

    def gradients(*given, wanted=(0, 1, 3)):
        return jax.grad(lambda *given: jnp.sin(of_all(*given)).sum(), wanted)(*given)

    found, calls = calls_on_device(gradients, *given)
    assert found == ["kron_gradients", "kron_matmul"]
    assert 'wanted = "0 1 3"' in "".join(calls)
    large = [array(5, 70 * 3), array(70, 2), array(3, 3)]

    def of_second(*given):
        return gradients(*given, wanted=(2,))

    assert calls_on_device(of_second, *large)[0] == ["kron_gradients", "kron_matmul"]


@pytest.mark.parametrize("case", ["complex", "large", "systems"])
def test_gradients_that_are_several_calls_on_a_device(array, case):
    """Those of complex numbers, large factors, and several systems."""
    shapes = [(70, 2), (4, 2)] if case == "large" else SHAPES
    dtype = "complex128" if case == "complex" else "float64"
    x = array(5, math.prod(shape[0] for shape in shapes), dtype=dtype)
    given = [x, *(array(*shape, dtype=dtype) for shape in shapes)]

    def gradients(*given):
        return jax.grad(lambda *given: jnp.sin(of_all(*given)).real.sum(), (0, 1, 2))(*given)

    if case == "systems":
        given, gradients = [jnp.stack([one, one]) for one in given], jax.vmap(gradients)
    found = calls_on_device(gradients, *given)[0]
    assert "kron_gradients" not in found
    assert found.count("kron_matmul") == len(shapes) + 2  # y; x̄; what is before the second factor


@pytest.mark.parametrize(
    ("case", "by_core"),
    [
        ("many rows", True),
        ("one small row", True),
        ("one large row", False),
        ("large factor", False),
        ("complex", False),
        ("systems", False),
    ],
)
def test_gradients_on_a_processor(array, monkeypatch, case, by_core):
    """One call of the core where there are rows for all threads, or little to do; else XLA's."""
    monkeypatch.setattr("batchkron.backends.cpu.gradients.get_num_threads", lambda: 2)
    rows, shapes = 1 if case.endswith("row") else 5, SHAPES
    if case == "one large row":  # 72 000 numbers
        shapes = [(3, 2), (4, 3), (60, 2), (50, 3), (2, 1)]
    if case == "large factor":
        shapes = [(65, 2), (2, 2)]
    dtype = "complex128" if case == "complex" else "float64"
    x = array(rows, math.prod(shape[0] for shape in shapes), dtype=dtype)
    given = [x, *(array(*shape, dtype=dtype) for shape in shapes)]
    if case == "systems":
        given = [jnp.stack([one, one]) for one in given]

    def gradients(product):
        def loss(*given):
            return jnp.sin(product(*given)).real.sum()

        found = jax.grad(loss, tuple(range(len(given))))
        return jax.jit(jax.vmap(found) if case == "systems" else found)

    text = gradients(of_all).lower(*given).as_text()
    assert ("@batchkron_kron_gradients" in text) == by_core
    compare(gradients(of_all)(*given), gradients(of_rows)(*given), 2000)


def test_numbers_of_a_mapped_x_are_vectors_of_one_system(array):
    x, A = array(3, 5, 8), [array(2, 3), array(4, 2)]

    def loss(x, A):
        return jnp.sin(jax.vmap(lambda x: kron_matmul(x, A))(x)).sum()

    found = calls_on_device(jax.grad(loss, (0, 1)), x, A)[0]
    assert found == ["kron_gradients", "kron_matmul"]
    compare(
        jax.grad(loss, (0, 1))(x, A),
        jax.grad(lambda x, A: jnp.sin(x @ jnp.kron(*A)).sum(), (0, 1))(x, A),
    )


def test_gradients_outside_of_compiled_functions_keep_their_dtype(array):
    with jax.enable_x64(False):
        x, A = jnp.ones((2, 4)), jnp.ones((4, 3))
        found = jax.grad(lambda x, A: kron_matmul(x, [A]).sum(), (0, 1))(x, A)
    compare(found, (np.full((2, 4), 3, "float32"), np.full((4, 3), 2, "float32")), 10)
