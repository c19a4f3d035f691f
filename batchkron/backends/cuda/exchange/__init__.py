"""Data that ranks exchange on CUDA devices: packed, and sent."""
