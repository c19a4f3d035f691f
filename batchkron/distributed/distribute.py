"""Make an operator distributed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal, overload

import numpy as np

from batchkron.attributes import attribute
from batchkron.distributed.agreement import refuse_disagreement
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.communication.communicators import as_communicator
from batchkron.distributed.grid import Grid, check_grid, choose_grid
from batchkron.distributed.kronecker_sparse.kronecker_sparse import DistributedSparse, SparseChain
from batchkron.distributed.kronecker_sparse.sparse_plan import make_sparse_plan
from batchkron.distributed.lists.batched_kron import DistributedBatch
from batchkron.distributed.lists.halo import HaloPlan
from batchkron.distributed.operator import DistributedOperator, Ranks, distributed_parts
from batchkron.distributed.preconditioners.combination import DistributedCombination, SumOfGrids
from batchkron.distributed.preconditioners.like_operator import is_combination, like_operator
from batchkron.distributed.problems.operators import ProblemOperators, on_device_of
from batchkron.distributed.problems.problem import DistributedProblem, SeparableProblem
from batchkron.distributed.products.kronecker_product import (
    DistributedProduct,
    ProductOptions,
    shapes_of,
)
from batchkron.distributed.products.kronecker_sum import DistributedSum
from batchkron.distributed.products.product_plan import ExchangeRule, make_plan
from batchkron.distributed.products.sum_plan import make_sum_plan
from batchkron.distributed.sweeps.sparse_grid import DistributedSweeps
from batchkron.distributed.sweeps.sweeps_plan import cell_bounds, plan_sweeps, work_of_cells
from batchkron.distributed.traffic_plan import TrafficPlan
from batchkron.operators import (
    BatchedKron,
    KroneckerProduct,
    KroneckerSparse,
    KroneckerSparseChain,
    KroneckerSum,
    Operator,
    SparseGridOperator,
)
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.spec.kron import as_flag
from batchkron.spec.kron_sparse import pattern_of

__all__ = ["distribute"]

# The work of the busiest rank in that of the mean, up to which ranks keep their cells when a grid
# changes: a fifth of a step is lost at most. Chosen by hand.
MAX_IMBALANCE = 1.2


@overload
def distribute(
    obj: Operator,
    comm: Any = None,
    grid: Literal["auto"] | Grid = "auto",
    *,
    rows: int = 1,
    exchange: ExchangeRule = "group",
    redistribute: bool = True,
    transpose: bool = False,
    like: Operator | None = None,
) -> DistributedOperator: ...
@overload
def distribute(
    obj: SeparableProblem,
    comm: Any = None,
    grid: Literal["auto"] | Grid = "auto",
    *,
    max_imbalance: float = MAX_IMBALANCE,
) -> DistributedProblem: ...
@overload
def distribute(
    obj: SumOfGrids,
    comm: Any = None,
    grid: Literal["auto"] | Grid = "auto",
    *,
    like: Operator | None = None,
) -> DistributedCombination: ...
def distribute(
    obj: Any,
    comm: Any = None,
    grid: Literal["auto"] | Grid = "auto",
    *,
    rows: int = 1,
    exchange: ExchangeRule = "group",
    redistribute: bool = True,
    transpose: bool = False,
    like: Operator | None = None,
    max_imbalance: float = MAX_IMBALANCE,
) -> DistributedOperator | DistributedProblem | DistributedCombination:
    """Return an operator on blocks: each rank has one of every vector. All ranks call it.

    Parameters
    ----------
    obj : Operator, Problem, LinearProblem or CombinationPreconditioner
        The whole KroneckerProduct, KroneckerSum, BatchedKron, SparseGridOperator, KroneckerSparse
        or KroneckerSparseChain, the same on every rank. Of a batch list each rank has some output
        blocks, and the products for them; of a sparse grid some consecutive cells; of a
        Kronecker-sparse matrix some of its blocks, residues or small matrices. A problem in time
        becomes one whose state is this rank's block, for `batchkron.solvers.evolve`. Or a
        CombinationPreconditioner for a sparse grid, whose full grids are dealt out to the ranks.
    comm : mpi4py communicator, Communicator or None
        The ranks; None for one rank, this process. If obj is on a device, each rank has a device,
        the current one (see `choose_device`). Then products write their results straight to the
        memory of the devices that own them, where these can access each other; everything else
        goes by NCCL. `NcclCommunicator` takes ``stores=False`` for NCCL in any case.
    grid : "auto" or (G_M, G_K)
        G_M · G_K ranks: vectors are dealt out to G_M groups, and each vector is spread over the
        G_K ranks of a group. By default the grid of the least estimated time: (G, 1), without
        communication, if there are vectors enough.
    rows : int
        The number of vectors that the grid is chosen for, and that `scatter` deals out.
    exchange : {"group", "every"}
        When the ranks of a product exchange their parts of a vector: after as many local multiplies
        as they can make without the others' parts, or after each multiply, as other codes do.
    redistribute : bool
        False leaves the last exchange of a product out: each rank then has elements of y that are
        not consecutive, see ``output_layout``. Of a square chain of Kronecker-sparse matrices it
        leaves out the exchange that brings y to the layout of x.
    transpose : bool
        With ``exchange="every"``, transpose in a pass of its own before each exchange, as codes do
        whose multiplies cannot; a baseline for measurements.

    like : Operator, optional
        For a preconditioner: its operator, distributed, or a sum or multiple of distributed ones,
        by which products with A are computed, and whose layout its vectors have. By default the
        operator of a CombinationPreconditioner is distributed. Of batch lists ``block_jacobi``
        makes a preconditioner: with ``like`` nothing of it is exchanged.
    max_imbalance : float
        For a problem whose grid follows the solution (`evolve` with ``adapt``): the work of the
        busiest rank in that of the mean, 1 or more. Up to this, ranks keep their cells when the
        grid changes; beyond it, cells are dealt out anew.

    Returns
    -------
    DistributedOperator
        Or a DistributedProblem for a problem, a DistributedCombination for a preconditioner.

    Raises
    ------
    ValueError
        If the grid does not have as many ranks as the communicator, the operator has several
        systems, another argument has no meaning, or the ranks pass operators or problems that are
        not the same to the last bit. If this process is not one of the communicator's ranks
        (``MPI.COMM_NULL``).
    TypeError
        If the operator or problem is of another kind.
    BackendUnavailableError
        If obj is on a device, and there is no NCCL, or two ranks have one device.

    Notes
    -----
    The algorithm is that of FastKron for several GPUs (Jangda and Yadav, PPoPP 2024, section 5),
    for factors of any shapes and parts of any sizes. For square factors P × P, vectors of
    K = P^N elements, and parts TG_K = K / G_K that all modes divide evenly, all ranks together send

        V = M (K - TG_K) ceil(N / N_local),    N_local = floor(log_P TG_K),

    elements in a product with M vectors, instead of M (K - TG_K) N with an exchange after each
    multiply.

    Every sum is taken in the same order as by one process that applies the factors in the same
    order, the last one first if they are square. So square factors give the same bits on any grid,
    unless their sizes are among 1, 2, 3, 4 and 8: for these, kernels apply several factors in one
    pass over memory, and which of them come together depends on the grid.

    For a Kronecker sum, x is exchanged until the terms of the first modes can be computed, and the
    sums go back on the same way: 2 K (1 - 1 / G_K) elements if there are two stages. For a batch
    list, each rank gets the blocks of x that its products read, each of them once. On a sparse
    grid, the same is done for x and for each vector between sweeps. Kronecker-sparse matrices
    I_a ⊗ 1_{b×c} ⊗ I_d are split by a or by d where that spreads them evenly, a chain of them so
    that the vectors that are exchanged between its factors have the fewest elements.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> from batchkron.distributed import distribute, simulate
    >>> whole = bk.KroneckerProduct([[[1.0, 2.0], [0.0, 1.0]]] * 4)
    >>> def program(comm):
    ...     op = distribute(whole, comm)
    ...     block = op.scatter(np.arange(16.0))
    ...     return op.gather(op.apply(block))
    >>> results = simulate(4, program)
    >>> [np.array_equal(y, whole @ np.arange(16.0)) for y in results]
    [True, True, True, True]
    """
    communicator = as_communicator(comm)
    rows = _checked_rows(rows)
    rule = _checked_rule(exchange)
    redistribute = as_flag(redistribute, "redistribute")
    transpose = as_flag(transpose, "transpose")
    if transpose and rule != "every":
        raise ValueError("transpose=True is a baseline of exchange='every', not of 'group'")
    options = ProductOptions(rows, rule, redistribute, transpose)
    plain = options == ProductOptions(1, "group", True, False)
    refuse_disagreement(
        communicator, obj, {"grid": grid, "options": options, "max_imbalance": max_imbalance}
    )
    if is_combination(obj) or (like is not None and isinstance(obj, BatchedKron)):
        if not plain:
            raise ValueError("a preconditioner takes one vector, and no options of products")
        if max_imbalance != MAX_IMBALANCE:
            raise ValueError("max_imbalance is for a problem, not for a preconditioner")
        return _preconditioner(obj, comm, grid, like)
    if like is not None:
        raise ValueError(
            f"like is for a preconditioner, whose vectors it describes, not for a "
            f"{type(obj).__name__}"
        )
    if isinstance(obj, SeparableProblem):
        if not plain:
            raise ValueError("a problem has one state, and takes no options of products")
        return _problem(obj, communicator, grid, _checked_imbalance(max_imbalance))
    if max_imbalance != MAX_IMBALANCE:
        raise ValueError(
            f"max_imbalance is for a problem, whose grid may change, not for a {type(obj).__name__}"
        )
    plan_of, make = _kind(obj, options)
    if isinstance(grid, str) and grid == "auto":
        chosen = choose_grid(communicator.size, rows, obj.dtype, plan_of)
    else:
        chosen = check_grid(grid, communicator.size)
    if obj.device != "cpu":
        communicator = communicator.of_devices()
    ranks = Ranks(communicator, chosen, communicator.neighbours(chosen[1]))
    with on_device_of(obj.device):
        return make(ranks)


_KINDS = (
    KroneckerProduct,
    KroneckerSum,
    BatchedKron,
    SparseGridOperator,
    KroneckerSparse,
    KroneckerSparseChain,
)


# The plan of an operator for a number of ranks, and what makes it on ranks.
_Kind = tuple[Callable[[int], TrafficPlan], Callable[[Ranks], DistributedOperator]]


def _kind(obj: Any, options: ProductOptions) -> _Kind:
    """Return how an operator is distributed.

    Raises `ValueError` if it has several systems, or an option is not one of its kind. `TypeError`
    if it is of another kind.
    """
    if not isinstance(obj, _KINDS):
        names = ", ".join(f"a {kind.__name__}" for kind in _KINDS)
        raise TypeError(
            f"a {type(obj).__name__} cannot be distributed; {names} or a Problem can. Sums, "
            "multiples and products of distributed operators are distributed, too"
        )
    if obj.batch_shape:
        raise ValueError(
            f"the operator has batch_shape {obj.batch_shape}; distribute the operator of one "
            "system, or deal the systems out to the ranks"
        )
    rows = options.rows
    if isinstance(obj, KroneckerProduct):
        factors, shapes = obj.factors, shapes_of(obj.factors)
        own = replace(options, precision=obj.precision, tune=obj._tune)
        rule, redistribute = options.exchange, options.redistribute
        return (
            lambda parts: make_plan(shapes, parts, rule, redistribute),
            lambda ranks: DistributedProduct(factors, ranks, own),
        )
    if options.exchange != "group" or options.transpose:
        raise ValueError(
            f"exchange and transpose are for a KroneckerProduct, not for a {type(obj).__name__}"
        )
    if isinstance(obj, (KroneckerSparse, KroneckerSparseChain)):
        return _sparse(obj, rows, options.redistribute)
    if not options.redistribute:
        raise ValueError(
            "redistribute is for a KroneckerProduct or Kronecker-sparse matrices, not for a "
            f"{type(obj).__name__}"
        )
    if isinstance(obj, KroneckerSum):
        terms = obj.factors
        sizes = [len(factor) for factor in terms]
        return (
            lambda parts: make_sum_plan(sizes, parts),
            lambda ranks: DistributedSum(terms, ranks, rows),
        )
    if isinstance(obj, SparseGridOperator):
        return _sweeps(obj, rows)
    batch, spec = obj, obj._spec
    return (
        lambda parts: HaloPlan(spec, parts),
        lambda ranks: DistributedBatch.of(batch, ranks, rows),
    )


def _sparse(whole: KroneckerSparse | KroneckerSparseChain, rows: int, redistribute: bool) -> _Kind:
    """Return how Kronecker-sparse matrices are distributed."""
    chain = SparseChain.of(whole)
    patterns = [pattern_of(values) for values in chain.values]
    plan = cache(lambda parts: make_sparse_plan(patterns, parts, redistribute))
    return plan, lambda ranks: DistributedSparse(chain, plan(ranks.grid[1]), ranks, rows)


def _sweeps(whole: SparseGridOperator, rows: int) -> _Kind:
    """Return how an operator on a sparse grid is distributed."""
    spec = whole._spec
    listed = listing, cells = list_sweeps(spec)
    work = work_of_cells(listing, cells)
    return (
        lambda parts: plan_sweeps(listing, cells, cell_bounds(work, cells, parts)),
        lambda ranks: DistributedSweeps(
            spec, listed, ranks, rows, cell_bounds(work, cells, ranks.grid[1])
        ),
    )


def _preconditioner(
    whole: Any, comm: Any, grid: Any, like: Any
) -> DistributedOperator | DistributedCombination:
    """Return a preconditioner on blocks of its operator's vectors."""
    operator = distribute(whole.operator, comm, grid) if like is None else like
    for part in distributed_parts(operator)[:1]:
        ranks = part.ranks.all.size
        if comm is not None and as_communicator(comm).size != ranks:
            raise ValueError(f"like is an operator on {ranks} ranks, and comm has others; give one")
    return like_operator(whole, operator)


def _problem(
    whole: Any, communicator: Communicator, grid: object, max_imbalance: float
) -> DistributedProblem:
    """Return a problem whose state is spread over all ranks."""
    size = communicator.size
    if not (isinstance(grid, str) and grid == "auto") and check_grid(grid, size) != (1, size):
        raise ValueError(
            f"grid is {grid!r}; expected 'auto' or (1, {size}): a problem has one state"
        )
    device = attribute(whole, "device", "cpu")
    if device != "cpu":
        communicator = communicator.of_devices()
    ranks = Ranks(communicator, (1, size), communicator)
    make = ProblemOperators(ranks, device, max_imbalance, _other_operator)
    return DistributedProblem(whole, communicator, make)


def _other_operator(operator: Operator, ranks: Ranks) -> DistributedOperator | None:
    """Return the operator of a problem on blocks of one vector, None if it cannot be spread.

    A product of one factor is a dense matrix.
    """
    is_dense = isinstance(operator, KroneckerProduct) and len(operator.factors) == 1
    if is_dense or not isinstance(operator, _KINDS):
        return None
    _, make = _kind(operator, ProductOptions(1, "group", True, False))
    return make(ranks)


def _checked_imbalance(bound: object) -> float:
    if isinstance(bound, bool) or not isinstance(bound, (int, float, np.integer, np.floating)):
        raise TypeError(f"max_imbalance is {bound!r}; expected a number")
    if not bound >= 1.0:
        raise ValueError(f"max_imbalance is {bound}; expected 1 or more, such as 1.2")
    return float(bound)


def _checked_rows(rows: object) -> int:
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
        raise TypeError(f"rows is {rows!r}; expected an integer")
    if rows < 0:
        raise ValueError(f"rows is {rows}; expected 0 or more")
    return int(rows)


def _checked_rule(exchange: object) -> ExchangeRule:
    if exchange == "group":
        return "group"
    if exchange == "every":
        return "every"
    raise ValueError(f"exchange is {exchange!r}; expected 'group' or 'every'")
