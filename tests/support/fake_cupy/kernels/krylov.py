"""Passes of Krylov methods: those of the compiled core, which take the same arguments."""

import numpy as np

from batchkron.backends import krylov_backend


def run_passes(kernel, address):
    """What the kernel of a sequence of passes does."""
    (names,) = kernel.numbers
    krylov_backend(np).krylov_passes(names, kernel.dtype, 0, 0, 0, None).run(address)
