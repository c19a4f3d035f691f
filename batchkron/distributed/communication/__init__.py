"""Ranks that send each other data: of MPI, of NCCL on devices, and simulated."""
