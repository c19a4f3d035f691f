"""Exact solves on the full grids of a combination, by sparse factorisations or dense inverses."""

from .elimination import Cost
from .grids import FactorisedGrids
from .limits import TooLargeError, check_cost, least_cost, stored_numbers

__all__ = ["Cost", "FactorisedGrids", "TooLargeError", "check_cost", "least_cost", "stored_numbers"]
