"""Fields along one axis: their values at points, and the operators that they multiply by."""
