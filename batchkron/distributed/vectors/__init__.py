"""Who owns what of vectors that are spread over ranks, and whole vectors into blocks."""
