"""Linear systems A x = b: layouts of their right-hand sides, limits of a solve, its result."""
