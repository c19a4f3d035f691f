"""Sums of vectors with numbers of a table, as the steps of time steppers take them."""
