"""Kronecker terms of a batch list, found from its numbers alone and compared with it."""

from batchkron.operators.recovered_terms.holder import TermsOfList

__all__ = ["TermsOfList"]
