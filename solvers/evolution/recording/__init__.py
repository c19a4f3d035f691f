"""Recorded quantities of a run: their history, fits of growth rates, pictures, datasets."""
