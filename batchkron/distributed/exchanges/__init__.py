"""What ranks exchange: parts of vectors in another order of modes, and blocks."""
