"""A batch of Kronecker products of pooled matrices as one linear operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.backends import backend
from batchkron.batch_spec import batch_spec
from batchkron.operators.base import Operator, leading_count
from batchkron.operators.validation import ValidationReport, validate_batch
from batchkron.spec import Accumulation, Array, as_host_array, check_output


class BatchedKron(Operator):
    """The operator y[outputs[b]] += weights[b] (A_1b ⊗ … ⊗ A_db) x[inputs[b]], A_kb from a pool.

    Vectors are made of blocks: x has ``num_inputs`` of them with ΠQ elements each, y has
    ``num_outputs`` with ΠP. As a linear operator it acts on flat vectors, the block index slowest.

    Parameters
    ----------
    pools : sequence of array_like (count_k, P_k, Q_k), or one such array for all modes
        The distinct matrices of each mode, copied.
    factor_ids : array_like of int, (products, modes)
        Product b uses ``pools[k][factor_ids[b, k]]``.
    inputs, outputs : array_like of int, (products,)
        Which block a product reads, and which it adds to; both may repeat.
    weights : array_like, (products,), optional
        Scale each product; 1 by default.
    num_inputs, num_outputs : int, optional
        Numbers of blocks; the largest index + 1 by default.
    accumulation : {"auto", "owner", "atomic"}
        How products of one output are added. "owner": one thread adds them in the list's order,
        the same bits from run to run and for any number of threads. "atomic": one task per
        product, added atomically in any order. "auto" never picks "atomic".

    Raises
    ------
    ValueError
        For shapes that do not fit.
    IndexError
        For an index out of range; the text names the first.
    TypeError
        For dtypes without kernels, or indices that are not integers.

    Notes
    -----
    A factor that is exactly the identity costs nothing: its mode is skipped.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> pool = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> op = bk.BatchedKron(pool, [[0, 1], [1, 0]], inputs=[0, 0], outputs=[0, 0])
    >>> op.apply([[1.0, 2.0, 3.0, 4.0]])
    array([[5., 5., 5., 5.]])
    """

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
    ) -> None:
        self._spec = batch_spec(
            pools,
            factor_ids,
            inputs,
            outputs,
            weights=weights,
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            accumulation=accumulation,
        )
        spec = self._spec
        self._plan = backend().batch_plan(spec)
        self._input_shape = (spec.num_inputs, spec.input_size)
        self._output_shape = (spec.num_outputs, spec.output_size)
        rows, columns = spec.num_outputs * spec.output_size, spec.num_inputs * spec.input_size
        super().__init__((rows, columns), spec.dtype)

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
            ``products[b][k]`` is A_kb, (P_k, Q_k): one shape per mode.
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
        """
        if len(products) == 0:
            raise ValueError("products is empty; use the constructor for a batch without products")
        shapes = [tuple(np.shape(factor) for factor in product) for product in products]
        for b, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"products[{b}] has factors of shapes {shape}; expected those of products[0], "
                    f"{shapes[0]}"
                )
        pools = [
            np.stack([np.asarray(factor) for factor in mode])
            for mode in zip(*products, strict=True)
        ]
        ids = np.repeat(np.arange(len(products))[:, None], len(shapes[0]), axis=1)
        return cls(pools, ids, inputs, outputs, **options)

    @property
    def num_products(self) -> int:
        """The number of products in the batch list."""
        return len(self._spec.inputs)

    @property
    def num_inputs(self) -> int:
        """The number of input blocks."""
        return self._spec.num_inputs

    @property
    def num_outputs(self) -> int:
        """The number of output blocks."""
        return self._spec.num_outputs

    def _run(self, x: Array, y: Array, outer: int, inner: int, accumulate: bool) -> None:
        self._plan.run(x, y, outer, inner, accumulate)

    def _blocks(self, x: ArrayLike) -> Array:
        """Return x as an array, after checking that its last two axes are the input blocks."""
        blocks = as_host_array(x, "x")
        if blocks.ndim < 2 or blocks.shape[-2:] != self._input_shape:
            expected = ", ".join(str(n) for n in self._input_shape)
            raise ValueError(
                f"x has shape {blocks.shape}; expected (..., {expected}): (input blocks, elements "
                f"of a block). Flat vectors go to matvec."
            )
        return blocks

    def apply(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute y = A x on blocks, overwriting y.

        Parameters
        ----------
        x : array_like, (..., num_inputs, ΠQ)
        out : ndarray, (..., num_outputs, ΠP), optional
            Where the result is written; with it, nothing is allocated.

        Returns
        -------
        ndarray, (..., num_outputs, ΠP)

        Raises
        ------
        ValueError, TypeError
            As `Operator.matvec`.
        """
        blocks = self._blocks(x)
        shape = blocks.shape[:-2] + self._output_shape
        return self._dispatch(blocks, out, shape, leading_count(shape, 2), 1)

    def accumulate(self, x: ArrayLike, y: Array) -> Array:
        """Compute y += A x on blocks, in place.

        Parameters
        ----------
        x : array_like, (..., num_inputs, ΠQ)
        y : ndarray, (..., num_outputs, ΠP)
            Written; of the dtype that A x has.

        Returns
        -------
        ndarray
            y itself.

        Raises
        ------
        ValueError, TypeError
            As `Operator.matvec`.
        """
        blocks = self._blocks(x)
        shape = blocks.shape[:-2] + self._output_shape
        if blocks.dtype == self.dtype and y.flags.c_contiguous:
            check_output(y, shape, self.dtype, (blocks,))
            source = blocks if blocks.flags.c_contiguous else blocks.copy()
            self._run(source, y, leading_count(shape, 2), 1, True)
            return y
        product = self.apply(blocks)
        check_output(y, shape, product.dtype, (blocks,))
        y += product
        return y

    def _rebuilt(self, pools: Sequence[Array], weights: Array, *, swap: bool) -> BatchedKron:
        """Return an operator of this structure with other entries, or with both ends swapped."""
        spec = self._spec
        ends = [(spec.inputs, spec.num_inputs), (spec.outputs, spec.num_outputs)]
        if swap:
            ends.reverse()
        return BatchedKron(
            pools,
            spec.factor_ids,
            ends[0][0],
            ends[1][0],
            weights=weights,
            num_inputs=ends[0][1],
            num_outputs=ends[1][1],
            accumulation=spec.accumulation,
        )

    def _build_transpose(self) -> BatchedKron:
        pools = [pool.transpose(0, 2, 1) for pool in self._spec.pools]
        return self._rebuilt(pools, self._spec.weights, swap=True)

    def _build_conjugate(self) -> BatchedKron:
        pools = [pool.conj() for pool in self._spec.pools]
        return self._rebuilt(pools, self._spec.weights.conj(), swap=False)

    def _build_as(self, dtype: np.dtype[Any]) -> BatchedKron:
        pools = [pool.astype(dtype) for pool in self._spec.pools]
        return self._rebuilt(pools, self._spec.weights.astype(dtype), swap=False)

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),), without forming the matrix.

        Raises
        ------
        ValueError
            If input and output blocks differ in size.
        """
        spec = self._spec
        if spec.input_size != spec.output_size or any(p.shape[1] != p.shape[2] for p in spec.pools):
            raise ValueError("the diagonal needs square factors; use to_dense().diagonal()")
        result = np.zeros((max(spec.num_inputs, spec.num_outputs), spec.output_size), self.dtype)
        chosen = np.flatnonzero(spec.inputs == spec.outputs)
        entries = spec.weights[chosen, None]
        for pool, ids in zip(spec.pools, spec.factor_ids[chosen].T, strict=True):
            diagonals = pool.diagonal(axis1=1, axis2=2)[ids]
            entries = (entries[:, :, None] * diagonals[:, None, :]).reshape(len(chosen), -1)
        np.add.at(result, spec.outputs[chosen], entries)
        return result.reshape(-1)[: min(self.shape)]

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the compiled product with dense Kronecker products on random vectors.

        Parameters
        ----------
        samples : int, optional
            How many output blocks to check, drawn at random; all by default.
        seed : int
            Of the random vectors and of the choice of blocks.

        Returns
        -------
        ValidationReport
            The largest error over its bound, and whether it is at most 1.
        """
        return validate_batch(self._spec, self.apply, samples, seed)

    def describe(self) -> str:
        """Return the batch's size, how many of its factors are identities, and its shapes."""
        spec = self._spec
        shapes = " ⊗ ".join(f"{pool.shape[1]}×{pool.shape[2]}" for pool in spec.pools)
        identities = sum(
            int(flags[ids].sum())
            for flags, ids in zip(spec.identity, spec.factor_ids.T, strict=True)
        )
        return (
            f"BatchedKron {self.shape[0]}×{self.shape[1]} {self.dtype}: {self.num_products} "
            f"products of {shapes}\n"
            f"  {spec.num_inputs} input and {spec.num_outputs} output blocks, "
            f"{identities} of {spec.factor_ids.size} factors are identities and cost nothing"
        )
