"""Products of a batch list with the blocks in registers of a team of threads."""
