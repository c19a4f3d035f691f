"""A gallery of PDEs with known solutions, each of which has a name."""

from .entry import GalleryEntry
from .registry import get, make, names

__all__ = ["GalleryEntry", "get", "make", "names"]
