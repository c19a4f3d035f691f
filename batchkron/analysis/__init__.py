"""Quantities over the time of a run: growth rates and frequencies, pictures, datasets."""
