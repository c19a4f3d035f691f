"""Least squares with any operator (M, N): LSQR and LSMR, and what they share."""
