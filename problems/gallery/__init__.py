"""PDEs with known solutions, by name."""

from .entry import GalleryEntry
from .registry import get, make, names

__all__ = ["GalleryEntry", "get", "make", "names"]
