"""Batch lists on a CUDA device: y[outputs[b]] += (A_1b ⊗ … ⊗ A_db) x[inputs[b]]."""
