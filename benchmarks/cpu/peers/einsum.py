"""opt_einsum, whose contraction path is found once, outside of the time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.core.checks import Array
from benchmarks.core.records import version_of
from benchmarks.core.timing import Contender
from benchmarks.cpu.contenders import Peer
from benchmarks.cpu.data import KronMatmulData
from benchmarks.shapes import KronMatmul


class OptEinsum(Peer):
    """`opt_einsum.contract_expression` over all factors at once."""

    name = "opt_einsum"
    shapes = (KronMatmul,)

    def missing(self) -> str | None:
        """Say if it is not installed."""
        return None if self.version() else "not installed"

    def version(self) -> str | None:
        """The package's version."""
        return version_of("opt_einsum")

    def kron_matmul(self, data: KronMatmulData) -> Iterable[Contender]:
        """One contraction; the rows and each mode have an index of their own."""
        opt_einsum = import_module("opt_einsum")
        modes = range(1, 1 + len(data.factors))
        read, written = [f"i{k}" for k in modes], [f"o{k}" for k in modes]
        symbols = {
            name: opt_einsum.get_symbol(count)
            for count, name in enumerate(["row", *read, *written])
        }
        terms = [["row", *read], *map(list, zip(read, written, strict=True)), ["row", *written]]
        *operands, result = ["".join(symbols[name] for name in term) for term in terms]
        tensor = (data.shape.rows, *(p for p, _ in data.shape.factors))
        expression = opt_einsum.contract_expression(
            f"{','.join(operands)}->{result}", tensor, *data.shape.factors
        )
        calls = [
            partial(contract, expression, x.reshape(tensor), data.factors) for x in data.inputs
        ]
        yield Contender(self.name, "cached path", list(calls), returns=True)


def contract(expression: Any, x: Array, factors: list[Array]) -> Any:
    """Evaluate the prepared expression."""
    return expression(x, *factors)
