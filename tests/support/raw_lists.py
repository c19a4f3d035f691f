"""Batch lists as another code would give them: numbers alone, in any order."""

import numpy as np

import batchkron as bk


def as_raw(operator, *, weights=None, order=None, blocks=None):
    """A list with the numbers of another one, without what that knows of its terms.

    The products are in the given order, and block b is number ``blocks[b]``.
    """
    spec = operator._spec
    order = np.arange(operator.num_products) if order is None else order
    blocks = np.arange(spec.num_inputs) if blocks is None else blocks
    return bk.BatchedKron(
        [pool[0].copy() for pool in spec.pools],
        spec.factor_ids[order],
        blocks[spec.inputs[order]],
        blocks[spec.outputs[order]],
        weights=(spec.weights[0] if weights is None else weights)[order],
        num_inputs=spec.num_inputs,
        num_outputs=spec.num_outputs,
    )


def dense_list(operator):
    """The matrix of a list, product by product."""
    spec = operator._spec
    n = spec.input_size
    matrix = np.zeros((spec.num_outputs, n, spec.num_inputs, n), spec.dtype)
    for ids, source, target, weight in zip(
        spec.factor_ids, spec.inputs, spec.outputs, spec.weights[0], strict=True
    ):
        product = np.full((1, 1), weight)
        for pool, number in zip(spec.pools, ids, strict=True):
            product = np.kron(product, pool[0, number])
        matrix[target, :, source] += product
    return matrix.reshape(operator.shape)


def dense_terms(terms):
    """The matrix of Kronecker terms on the cells of a grid, pair by pair of cells."""
    count, n = len(terms.cells), int(np.prod(terms.sizes))
    matrix = np.zeros((count, n, count, n), terms.dtype)
    for term in terms.terms:
        tables = []
        for factor in term.factors:
            if factor is None:
                tables.append(None)
                continue
            pairs = zip(factor.rows.tolist(), factor.columns.tolist(), strict=True)
            tables.append(dict(zip(pairs, factor.blocks, strict=True)))
        for i, row in enumerate(terms.cells.tolist()):
            for j, column in enumerate(terms.cells.tolist()):
                product = np.full((1, 1), term.coefficient)
                for table, pair, size in zip(
                    tables, zip(row, column, strict=True), terms.sizes, strict=True
                ):
                    if table is None:
                        block = np.eye(size) if pair[0] == pair[1] else None
                    else:
                        block = table.get(pair)
                    if block is None:
                        break
                    product = np.kron(product, block)
                else:
                    matrix[i, :, j] += product
    return matrix.reshape((count * n,) * 2)
