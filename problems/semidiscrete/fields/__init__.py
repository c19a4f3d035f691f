"""Moments of a state, and the terms whose coefficients are computed from them."""
