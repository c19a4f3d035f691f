"""The only importer of the compiled module `batchkron._core`, all of whose names it has."""

from batchkron._core import *  # noqa: F403
