"""A batch of Kronecker products of pooled matrices as one linear operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native, native_entries
from batchkron.arrays import array_module, as_list, to_host
from batchkron.backends import (
    backend,
    backend_for,
    building_on,
    own_apply,
    reserve,
    tuned_plans,
    tuning_for,
)
from batchkron.operators.block_operator import BlockOperator
from batchkron.operators.conversions import relatives_lock
from batchkron.operators.diagonal_blocks import DiagonalBlocks, blocks_of_list
from batchkron.operators.factored_list.choice import (
    PlanChoice,
    PlanName,
    columns_at_once,
    plan_choice,
)
from batchkron.operators.factored_list.slices import SlicedPlan
from batchkron.operators.factored_list.stored import StoredPlan, stored_plan
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.kronmult_layout import (
    PoolsOf,
    bases_of,
    block_ids,
    offsets_of,
    pools_of_layout,
)
from batchkron.operators.recovered_terms import KnownTerms, TermsOfList
from batchkron.operators.validation import ValidationReport, validate_batch, ways_to_apply
from batchkron.spec.batch import (
    batch_spec,
    conjugated,
    identity_flags,
    module_of_batch,
    of_dtype,
    pool_arrays,
    pool_values,
    transposed,
    weight_values,
)
from batchkron.spec.kron import Accumulation, Array, BatchSpec, check_replacement


class BatchedKron(TermsOfList, BlockOperator):
    """The operator y[outputs[b]] += weights[b] (A_1b ⊗ … ⊗ A_db) x[inputs[b]], A_kb from a pool.

    Vectors consist of blocks: x has ``num_inputs`` of them with ΠQ elements each, y has
    ``num_outputs`` with ΠP. As a linear operator it acts on flat vectors, the block index slowest.

    Parameters
    ----------
    pools : sequence of array_like (..., count_k, P_k, Q_k), or one such array for all modes
        The distinct matrices of each mode; they are copied. Leading axes broadcast together, and
        with those of the weights, to ``batch_shape``: one system of this structure for each index.
    factor_ids : array_like of int, (products, modes)
        Product b uses ``pools[k][factor_ids[b, k]]``.
    inputs, outputs : array_like of int, (products,)
        The block that each product reads, and the block that it is added to; both may repeat.
    weights : array_like, (..., products), optional
        Scalar factor of each product; 1 by default.
    num_inputs, num_outputs : int, optional
        Numbers of blocks; the largest index + 1 by default.
    accumulation : {"auto", "owner", "atomic"}
        How products of one output are added. "owner": one thread adds them in a fixed order, so
        that the result has the same bits from run to run and for any number of threads. "atomic":
        one task per product, added atomically in any order. "auto" never picks "atomic".
    skip_identities : bool
        Skip the modes whose factor is exactly the identity, so that they cost nothing. `update`
        must then keep these matrices the identity; pass False if it will not.
    tune : bool
        On a CUDA device, search the fastest kernel for this list when the operator is built there,
        for up to two minutes, unless an earlier search has found it: the result is stored for all
        processes of the user. No effect on the CPU.

    Raises
    ------
    ValueError
        If shapes do not fit together.
    IndexError
        If an index is out of range; the text names the first one.
    TypeError
        If a dtype has no kernels, indices are not integers, or ``tune`` is not a bool.
    OverflowError
        If there are 2^31 input blocks or more.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> pool = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> op = bk.BatchedKron(pool, [[0, 1], [1, 0]], inputs=[0, 0], outputs=[0, 0])
    >>> op.apply([[1.0, 2.0, 3.0, 4.0]])
    array([[5., 5., 5., 5.]])
    """

    _pools_of: PoolsOf | None = None  # where `update` finds the matrices in one array

    def __init__(
        self,
        pools: Sequence[ArrayLike] | Array,
        factor_ids: ArrayLike,
        inputs: ArrayLike,
        outputs: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        num_inputs: int | None = None,
        num_outputs: int | None = None,
        accumulation: Accumulation = "auto",
        skip_identities: bool = True,
        tune: bool = False,
    ) -> None:
        tuning_for(tune)  # raises before any work
        if not hasattr(pools, "ndim"):
            pools = as_list(pools, "pools")
        pools, weights = native_entries(pools, "pools"), native(weights, "weights")
        module = module_of_batch(pools, weights)
        spec = batch_spec(
            pools,
            factor_ids,
            inputs,
            outputs,
            weights=weights,
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            accumulation=accumulation,
            skip_identities=skip_identities,
        )
        with building_on(backend_for(module)):
            self._prepare(spec, tune)

    @classmethod
    def _from_spec(
        cls,
        spec: BatchSpec,
        tune: bool = False,
        known: KnownTerms | None = None,
        pools_of: PoolsOf | None = None,
        wanted: PlanName | PlanChoice = "direct",
        direct: Any = None,
    ) -> BatchedKron:
        """Build the operator from a validated batch list, perhaps with a direct plan of it.

        ``wanted`` is the name of a plan, or one that was chosen for this list.
        """
        operator = cls.__new__(cls)
        operator._prepare(spec, tune, wanted, direct)
        operator._known, operator._pools_of = known or operator._known, pools_of
        return operator

    def _prepare(
        self,
        spec: BatchSpec,
        tune: bool,
        wanted: PlanName | PlanChoice = "direct",
        direct: Any = None,
    ) -> None:
        self._spec, self._tune, self._known = spec, tune, KnownTerms()
        self._input_shape = (spec.num_inputs, spec.input_size)
        self._output_shape = (spec.num_outputs, spec.output_size)
        rows, columns = spec.num_outputs * spec.output_size, spec.num_inputs * spec.input_size
        super().__init__((rows, columns), spec.dtype, spec.batch_shape)
        self._take_plan(*self._planned(spec, wanted, direct))

    def _planned(
        self, spec: BatchSpec, wanted: PlanName | PlanChoice, direct: Any = None
    ) -> tuple[PlanChoice, Any]:
        """Return how to run a list, and the plan; ``direct`` is a direct one that may be taken."""
        if isinstance(wanted, PlanChoice):
            choice = wanted.with_steps(spec)
        else:
            choice = plan_choice(spec, wanted)
        listing = choice.listing
        if listing is not None:
            matrices = listing.matrices_of(spec)
            if matrices is None:
                raise RuntimeError("internal error: a factored plan does not fit its list")
            plan = SlicedPlan(listing.groups, matrices, columns_at_once(spec, listing))
            return choice._replace(listing=listing.without_steps()), plan  # the plan has them
        if direct is not None:
            return choice, direct
        with tuned_plans(tuning_for(self._tune)):
            return choice, backend().batch_plan(spec)

    def _take_plan(self, choice: PlanChoice, plan: Any) -> None:
        self._choice, self._plan = choice, plan
        # A factored plan takes the vectors of all systems as one.
        self._together = 1 if choice.listing is None else self._spec.systems
        self._apply_fast = None if self.batch_shape else own_apply(plan)

    def plan(self, name: PlanName) -> BatchedKron:
        """Return the operator with another plan, the way in which its products are computed.

        An update of one of the two operators changes both.

        Parameters
        ----------
        name : {"direct", "factored", "auto"}
            "direct", as every list is built: product by product. "factored": products that begin or
            end with the same factors share them, so that a list of a grid costs about as much as
            multiplying mode by mode. The factors are square; multiples of the identity are skipped,
            unless the operator has ``skip_identities=False``. "auto": one of the two, by counted
            multiply-adds and bytes; `describe` says which and why.

        Returns
        -------
        BatchedKron
            ``self`` if it has this plan already. Its transposes, conversions and copies elsewhere
            have the plan, too.

        Raises
        ------
        ValueError
            If the name is unknown; for "factored" if factors are not square.

        Notes
        -----
        The plans add in another order, so that the last bits of their results differ. Those of
        "factored" are the same in each run and for any number of threads, also with
        ``accumulation="atomic"``.

        Partial products take at most 1 GiB, or eight times the bytes of the vectors: where they
        would be more, products are divided into groups that share less, and of many vectors some
        are multiplied at a time.

        It takes some seconds to factor ten million products. `update` has to do it again if weights
        that were equal become different, or if a skipped multiple of the identity becomes another
        matrix; then CUDA graphs have to be captured again.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> pool = np.random.default_rng(0).standard_normal((64, 2, 2))
        >>> out, source = np.divmod(np.arange(64**2), 64)  # all pairs of the 8 × 8 cells of a grid
        >>> ids = np.stack([out // 8 * 8 + source // 8, out % 8 * 8 + source % 8], axis=1)
        >>> op = bk.BatchedKron(pool, ids, source, out)
        >>> factored = op.plan("factored")
        >>> print(factored.describe().splitlines()[-1].partition(" (")[0])
          plan: factored, 8,192 multiply-adds
        """
        if name == self._choice.wanted:
            return self
        kind = f"plan {name}"
        with relatives_lock:
            if kind not in self._relatives:
                direct = self._plan if self._choice.listing is None else None
                with building_on(self._backend):
                    other = BatchedKron._from_spec(
                        self._spec, self._tune, self._known, self._pools_of, name, direct
                    )
                other._relatives[f"plan {self._choice.wanted}"] = self
                self._relatives[kind] = other
            return self._relatives[kind]  # type: ignore[return-value]

    def _recipe(self) -> tuple[Any, ...]:
        return BatchedKron._from_spec, (
            self._spec,
            self._tune,
            replace(self._known),  # a copy: the two operators may be updated differently
            self._pools_of,
            self._choice.without_steps(),
        )

    def _content(self) -> tuple[Any, ...]:
        spec = self._spec
        lists = spec.factor_ids, spec.inputs, spec.outputs
        return (*spec.pools, *lists, spec.weights, spec.num_inputs, spec.num_outputs)

    @classmethod
    def from_products(
        cls,
        products: Sequence[Sequence[ArrayLike]],
        inputs: ArrayLike,
        outputs: ArrayLike,
        **options: Any,
    ) -> BatchedKron:
        """Build the operator from the matrices of each product.

        Parameters
        ----------
        products : sequence of sequences of array_like
            ``products[b][k]`` is A_kb, (P_k, Q_k): the same shape for all products.
        inputs, outputs : array_like of int, (products,)
        **options
            As for the constructor.

        Returns
        -------
        BatchedKron

        Raises
        ------
        ValueError
            If there is no product, or the products' shapes differ.
        TypeError
            If a factor is no array.
        """
        given = [
            as_list(one, f"products[{b}]") for b, one in enumerate(as_list(products, "products"))
        ]
        if not given:
            raise ValueError("products is empty; use the constructor for a batch without products")
        arrays = [
            [to_host(factor, f"products[{b}][{k}]") for k, factor in enumerate(product)]
            for b, product in enumerate(given)
        ]
        shapes = [tuple(factor.shape for factor in product) for product in arrays]
        for b, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"products[{b}] has factors of shapes {shape}; expected those of products[0], "
                    f"{shapes[0]}"
                )
        pools = [np.stack(mode) for mode in zip(*arrays, strict=True)]
        ids = np.repeat(np.arange(len(given))[:, None], len(shapes[0]), axis=1)
        with building_on(backend_for(array_module(*itertools.chain(*given)))):
            return cls(pools, ids, inputs, outputs, **options)

    @classmethod
    def from_kronmult(
        cls,
        matrices: ArrayLike,
        matrix_offsets: ArrayLike,
        x_offsets: ArrayLike,
        y_offsets: ArrayLike,
        *,
        n: int,
        lda: int | None = None,
        bases: Sequence[int] | None = None,
        **options: Any,
    ) -> BatchedKron:
        """Build the operator from the arguments of kronmult: column-major matrices, and offsets.

        Product b is y[y_b … y_b + n^d - 1] += (A_1b ⊗ … ⊗ A_db) x[x_b … x_b + n^d - 1], where
        A_kb has the entry (i, j) at ``matrices[matrix_offsets[b, k] + i + lda * j]``.

        Parameters
        ----------
        matrices : array_like, (elements,) or (rows, columns)
            All matrices; they are copied. With two axes one large matrix, whose elements count
            column by column, and which the n × n matrices are blocks of.
        matrix_offsets : array_like of int, (products, d)
            Where the matrices of each product begin; a matrix that several products have is stored
            once.
        x_offsets, y_offsets : array_like of int, (products,)
            Where a product's block of x and of y begins: multiples of n^d.
        n : int
            The size of the matrices.
        lda : int, optional
            The leading dimension; by default the rows of a matrix with two axes, else n.
        bases : (int, int, int), optional
            The addresses of the arrays of matrices, of x and of y. With it all offsets are
            addresses in bytes, as rows of pointers have.
        **options
            As for the constructor: ``num_inputs`` and ``num_outputs``, the blocks of n^d elements
            of the whole x and y, where these reach beyond the last offsets.

        Returns
        -------
        BatchedKron
            ``apply`` and ``accumulate`` take the whole arrays x and y as flat vectors, and
            ``update(matrices)`` copies new values of the whole array of matrices, here and in
            .to("cuda").

        Raises
        ------
        ValueError, TypeError, IndexError
            If arguments do not fit together; the text names the first wrong entry.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> matrices = np.array([0.0, 1.0, 1.0, 0.0, 2.0, 0.0, 0.0, 3.0])  # two, by columns
        >>> offsets = [[0, 4], [4, 4]]  # A₀ ⊗ A₁ and A₁ ⊗ A₁
        >>> op = bk.BatchedKron.from_kronmult(matrices, offsets, [0, 4], [0, 0], n=2)
        >>> op.apply(np.ones(8))
        array([ 6.,  9.,  8., 12.])
        """
        if bases is not None:
            base, x_base, y_base = bases_of(bases)
            itemsize = to_host(matrices, "matrices").itemsize
            matrix_offsets = offsets_of(matrix_offsets, base, itemsize, "matrix_offsets", 2)
            x_offsets = offsets_of(x_offsets, x_base, itemsize, "x_offsets", 1)
            y_offsets = offsets_of(y_offsets, y_base, itemsize, "y_offsets", 1)
        pools_of, ids = pools_of_layout(matrices, lda, matrix_offsets, n)
        size = int(n) ** ids.shape[1]
        places = block_ids(x_offsets, "x_offsets", size), block_ids(y_offsets, "y_offsets", size)
        with building_on(backend_for(array_module(matrices))):
            made = cls(pools_of(matrices), ids, *places, **options)
        made._pools_of = pools_of
        return made

    @property
    def num_products(self) -> int:
        """Number of products in the batch list."""
        return len(self._spec.inputs)

    @property
    def num_inputs(self) -> int:
        """Number of input blocks."""
        return self._spec.num_inputs

    @property
    def num_outputs(self) -> int:
        """Number of output blocks."""
        return self._spec.num_outputs

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._plan.run(x, y, outer // self._together, inner, alpha, accumulate)

    def _bind(self, x: Array, y: Array) -> Callable[[], object] | None:
        if self.batch_shape or self.device != "cpu":
            return None
        if self._choice.listing is not None:  # an update may replace the plan by another one
            return partial(self._apply_to, x, y)
        make = getattr(self._plan, "bind", None)
        return None if make is None else make(x, y, 1, 1, 1, False)

    def _apply_to(self, x: Array, y: Array) -> None:
        """Overwrite y with A x for flat vectors that need no checks."""
        if self._apply_fast is None or not self._apply_fast(x, y):
            self._run(x, y, 1, 1, 1, False)

    def _reserve(self, outer: int, inner: int) -> None:
        reserve(self._plan, outer // self._together, inner)

    def update(
        self, pools: Sequence[ArrayLike] | Array | None = None, weights: ArrayLike | None = None
    ) -> None:
        """Replace matrices or weights by others of the same shapes, in place, without replanning.

        This changes .T, .H, converted and composed operators, too. It must not be called while
        another thread applies the operator.

        Parameters
        ----------
        pools : sequence of array_like (..., count_k, P_k, Q_k), or one for all modes, optional
            Of an operator of `from_kronmult` also its array of matrices, with one axis or two.
        weights : array_like, (..., products), optional

        Raises
        ------
        ValueError
            If a shape differs, or a matrix that is skipped as an identity is not one any more. Then
            no value has changed, neither here nor in an operator that was made of this one.
        TypeError
            If a dtype cannot be converted to the operator's; again nothing has changed.
        """
        pools, weights = native_entries(pools, "pools"), native(weights, "weights")
        if self._pools_of is not None and getattr(pools, "ndim", 3) < 3:
            pools = self._pools_of(pools)  # type: ignore[arg-type]
        spec = self._spec
        new_pools, new_weights = list(spec.pools), spec.weights
        if pools is not None:
            arrays = pool_arrays(pools, len(spec.pools))
            for k, (array, pool) in enumerate(zip(arrays, spec.pools, strict=True)):
                self._check_values(array, pool.shape[-3:], f"pools[{k}]")
            new_pools = list(pool_values(arrays, self.batch_shape, self.dtype))
        if weights is not None:
            given = to_host(weights, "weights")
            self._check_values(given, spec.weights.shape[-1:], "weights")
            new_weights = weight_values(given, self.batch_shape, self.dtype)
        for k, (flags, pool) in enumerate(zip(spec.identity, new_pools, strict=True)):
            broken = flags & ~identity_flags(pool)
            if broken.any():
                raise ValueError(
                    f"pools[{k}][{int(np.argmax(broken))}] was the identity and is skipped, but "
                    f"the new matrix is not; build the operator with skip_identities=False"
                )
        self._update(new_pools, new_weights)

    def _check_values(self, array: Array, trailing: tuple[int, ...], name: str) -> None:
        """Check that new values keep their last axes and that leading ones fit batch_shape."""
        leading = array.shape[: array.ndim - len(trailing)]
        fits = len(leading) <= len(self.batch_shape) and all(
            n in (1, wanted)
            for n, wanted in zip(reversed(leading), reversed(self.batch_shape), strict=False)
        )
        shape = leading + trailing if fits else self.batch_shape + trailing
        check_replacement(array, shape, self.dtype, name)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self._assignment(matrices, weights)()

    def _assignment(self, matrices: Sequence[Array], weights: Array | None) -> Callable[[], object]:
        spec = self._spec
        pools = tuple(np.ascontiguousarray(matrix, self.dtype) for matrix in matrices)
        weights = np.asarray(spec.weights if weights is None else weights, self.dtype)
        spec = replace(spec, pools=pools, weights=weights)
        listing = self._choice.listing
        if listing is None:
            return partial(self._set_values, spec, pools, weights)
        values = listing.matrices_of(spec)
        if values is not None:
            return partial(self._set_values, spec, values)
        with building_on(self._backend):
            return partial(self._replan, spec, *self._planned(spec, self._choice.wanted))

    def _set_values(self, spec: BatchSpec, *values: Any) -> None:
        """Take the values of a list, of which the plan needs these."""
        self._plan.set_values(*values)
        self._spec = spec
        self._forget_terms()

    def _replan(self, spec: BatchSpec, choice: PlanChoice, plan: Any) -> None:
        """Take the values of a list with another plan."""
        self._backend.repetition.note_move()
        self._spec = spec
        self._take_plan(choice, plan)
        self._forget_terms()

    def _build_on(self, device: str) -> BatchedKron:
        return BatchedKron._from_spec(
            self._spec, self._tune, self._known, self._pools_of, self._choice
        )

    def _stored_plan(self) -> StoredPlan | None:
        """Return the graphs of the plan as files hold them; None for the direct plan."""
        listing = self._choice.listing
        return None if listing is None else stored_plan(listing, self.num_inputs)

    def _like(self, spec: BatchSpec) -> BatchedKron:
        """Return the operator of another list, with a plan of the same name."""
        return BatchedKron._from_spec(spec, self._tune, None, None, self._choice.wanted)

    def _build_transpose(self) -> BatchedKron:
        return self._like(transposed(self._spec))

    def _build_conjugate(self) -> BatchedKron:
        return self._like(conjugated(self._spec))

    def _build_as(self, dtype: np.dtype[Any]) -> BatchedKron:
        return self._like(of_dtype(self._spec, dtype))

    def declare_terms(self, terms: KroneckerTerms) -> None:
        """Declare the Kronecker terms on a grid from which the batch list was made.

        `kronecker_terms` returns them from now on, here and on other devices, until `update`
        replaces the entries. `recover_terms` finds them instead.

        Parameters
        ----------
        terms : KroneckerTerms
            The terms; they are not compared with the batch list.

        Raises
        ------
        ValueError
            If the terms have another number of unknowns.
        """
        if self.shape != (terms.unknowns,) * 2:
            raise ValueError(
                f"terms are of {terms.unknowns} unknowns; the operator has shape {self.shape}"
            )
        self._forget_terms()
        self._known.terms = terms

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of `declare_terms` or `recover_terms`.

        Raises
        ------
        TypeError
            If neither was called, or `update` has replaced the entries since.
        """
        terms = self._known.terms
        return super().kronecker_terms() if terms is None else terms

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the products of the list that map a block to itself, or those of its terms."""
        terms = self._known.terms
        if terms is not None and terms.cells is not None:
            return super().diagonal_blocks()
        return blocks_of_list(self._spec)

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),); from the factors' diagonals if they are square."""
        spec = self._spec
        if self.batch_shape or any(pool.shape[2] != pool.shape[3] for pool in spec.pools):
            return super().diagonal()
        result = np.zeros((max(spec.num_inputs, spec.num_outputs), spec.output_size), self.dtype)
        chosen = np.flatnonzero(spec.inputs == spec.outputs)
        entries = spec.weights[0, chosen, None]
        for pool, ids in zip(spec.pools, spec.factor_ids[chosen].T, strict=True):
            diagonals = pool[0].diagonal(axis1=1, axis2=2)[ids]
            size = entries.shape[1] * diagonals.shape[1]
            entries = (entries[:, :, None] * diagonals[:, None, :]).reshape(len(chosen), size)
        np.add.at(result, spec.outputs[chosen], entries)
        return self._arrays.asarray(result.reshape(-1)[: min(self.shape)])  # type: ignore[no-any-return]

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare compiled products with dense Kronecker products on random vectors.

        Compared are products of one vector and of several, with `apply`, with `accumulate` for
        alpha = 1 and another value, and with the transpose.

        Parameters
        ----------
        samples : int, optional
            Number of output blocks to check, drawn at random; all by default.
        seed : int
            Seed of the random vectors and of the choice of blocks.

        Returns
        -------
        ValidationReport
            The largest ratio of an error to its bound, the product where it occurs, and whether it
            is at most 1.

        Raises
        ------
        ValueError
            If ``samples`` is less than 1.
        """
        ways = ways_to_apply(self, self._input_shape, self._output_shape)
        return validate_batch(self._spec, ways, samples, seed)

    def describe(self) -> str:
        """Return a text with the list's size and shapes, and the number of identity factors."""
        spec = self._spec
        shapes = " ⊗ ".join(f"{pool.shape[2]}×{pool.shape[3]}" for pool in spec.pools)
        identities = sum(
            int(flags[ids].sum())
            for flags, ids in zip(spec.identity, spec.factor_ids.T, strict=True)
        )
        return (
            f"{super().describe()}: {self.num_products} products of {shapes}\n"
            f"  {spec.num_inputs} input and {spec.num_outputs} output blocks, "
            f"{identities} of {spec.factor_ids.size} factors are identities and cost nothing"
            + (f"\n  {self._known.remark}" if self._known.remark else "")
            + (f"\n  plan: {self._choice.reason}" if self._choice.reason else "")
        )
