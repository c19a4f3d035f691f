"""Products with diagonal matrices."""
