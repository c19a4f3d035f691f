"""Batch lists whose products share their partial products: the plan "factored"."""
