"""Known solutions: their projection onto a grid, and the errors of states."""
