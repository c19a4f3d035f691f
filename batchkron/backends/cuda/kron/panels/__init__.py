"""Kron-Matmuls of one factor, by panels of the factor and of the fibres."""
