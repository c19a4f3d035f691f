"""PDEs with known solutions, by name."""

from batchkron.problems.gallery.entry import GalleryEntry
from batchkron.problems.gallery.registry import get, make, names

__all__ = ["GalleryEntry", "get", "make", "names"]
