"""Guards, which check after each step whether a run has become unstable."""
