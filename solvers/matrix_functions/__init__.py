"""Functions of any operator times vectors, f(A) b, by Krylov's method."""
