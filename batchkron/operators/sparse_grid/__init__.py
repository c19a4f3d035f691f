"""Sums of Kronecker products on sparse grids, applied by sweeps along fibres.

A fibre is a set of cells that differ in one mode's index only. A sweep applies one mode's 1-D
operator along all fibres. Sweeps apply the modes of a term one after another; so that the vectors
between them need no more cells than the grid has, the 1-D operators of all modes but one are split
into an upper part (to the same or a coarser level), applied first, and a lower part (to a finer
level), applied last.
"""
