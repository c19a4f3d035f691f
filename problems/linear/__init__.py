"""Linear problems of one operator that is given, such as a batch list, and not made from a PDE."""
