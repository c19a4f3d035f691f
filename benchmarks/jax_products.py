"""Products of batchkron.jax: ``python -m benchmarks.jax_products [--dtype float32]``."""

import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from batchkron.jax import kron_matmul
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import in_turn, medians
from benchmarks.shapes import chain, square_shapes

# Rows, and the sizes of square factors: FastKron's, and small and uneven ones.
SHAPES = square_shapes(
    "256: 8^5 | 128: 16^4 | 256: 32^3 | 1024: 64^2; 128^2; 3^7 | 20: 2^9 | 4: 8^3 | 33: 3, 5, 4, 6"
)
ROUND_SECONDS = 0.02  # about the length of one contender's turn
LOOPS = 32
IN_A_LOOP = ", in a loop"
TOLERANCE = {"float32": 1e-4, "float64": 1e-11}  # relative to the largest entry


def with_gradients(product):
    """A function of x, factors and a weight: the product, and gradients of its weighted sum."""

    def loss(x, factors, weight):
        y = product(x, factors)
        return jnp.vdot(y, weight), y

    gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)
    return jax.jit(lambda *given: (lambda found: (found[0][1], *found[1]))(gradients(*given)))


CONTENDERS = {
    "ours": jax.jit(lambda x, factors, weight: kron_matmul(x, factors)),
    "chain": jax.jit(lambda x, factors, weight: chain(x, factors)),
    "ours, gradients": with_gradients(kron_matmul),
    "chain, gradients": with_gradients(chain),
}


def repeated(function):
    """A compiled function that calls one `LOOPS` times, of which no call can be left out."""

    def call(_, carried):
        given, _ = jax.lax.optimization_barrier(carried)
        return given, function(*given)

    def calls(*given):
        return jax.lax.fori_loop(1, LOOPS, call, (given, function(*given)))[1]

    return jax.jit(calls)


def is_wrong(found, exact, tolerance):
    """Whether a leaf differs from the exact one by more than a share of its largest entry."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True)
    return any(
        not relative_error(np.asarray(one), np.asarray(other)) <= tolerance for one, other in pairs
    )


def measure(name, dtype, rounds):
    rows, sizes = SHAPES[name]
    rng = np.random.default_rng(0)
    size = math.prod(sizes)
    exact = rng.standard_normal((rows, size)), [rng.standard_normal((n, n)) for n in sizes]
    exact_given = jax.tree.map(jnp.asarray, (*exact, rng.standard_normal((rows, size))))
    given = jax.tree.map(lambda one: one.astype(dtype), exact_given)
    wrong, timed = [], dict(CONTENDERS)
    for contender, function in CONTENDERS.items():
        reference = CONTENDERS[contender.replace("ours", "chain")](*exact_given)
        if is_wrong(function(*given), reference, TOLERANCE[dtype]):
            wrong.append(contender)
        timed[f"{contender}{IN_A_LOOP}"] = repeated(function)

    def call(function):
        return lambda: jax.block_until_ready(function(*given))

    calls = {contender: call(function) for contender, function in timed.items()}
    times = medians(in_turn(calls, rounds, ROUND_SECONDS))
    for contender in times:
        times[contender] *= 1e6 / (LOOPS if contender.endswith(IN_A_LOOP) else 1)
    return {"name": name, "dtype": dtype, "microseconds": times, "wrong": wrong}


def main(arguments=None):
    parser = parser_of(__doc__, "rounds", "json", rounds=7)
    parser.add_argument("--dtype", choices=TOLERANCE, nargs="+", default=list(TOLERANCE))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options = parser.parse_args(arguments)
    belongs_to = machine("cuda" if jax.default_backend() == "gpu" else "cpu")
    cells = product(options.dtype, options.shapes)
    rows = (measure(name, dtype, options.rounds) for dtype, name in cells)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        recorded(rows, options.json, {"machine": belongs_to}, "rows")


if __name__ == "__main__":
    main()
