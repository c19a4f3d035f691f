"""Kronecker products and sums whose vectors are spread over ranks."""
