"""Krylov solvers and time steppers."""
