"""Kronecker terms of a batch list, found from its numbers alone and compared with it."""

from batchkron.operators.recovered_terms.holder import KnownTerms, TermsOfList

__all__ = ["KnownTerms", "TermsOfList"]
