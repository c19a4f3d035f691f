"""kron: launches of explicit products."""

import numpy as np
from dense_oracle import DTYPES, random_array

import batchkron as bk
from fake_device_checks import DEVICE
from fake_device_checks.common import close, on_device


def explicit_products():
    """The last launch of several factors takes those before it along, where rows are long."""
    rng = np.random.default_rng(8)
    for dtype in DTYPES:
        for shapes, launches in [
            ([(3, 4), (2, 5)], 1),
            ([(8, 8)] * 4, 1),
            ([(3, 40), (2, 3), (4, 11)], 1),
            ([(2, 2)] * 4, 3),  # short rows
            ([(4, 8), (4, 8), (4, 8), (2, 3), (2, 3), (2, 3)], 3),
        ]:
            host = [random_array(rng, shape, dtype) for shape in shapes]
            factors = on_device(host)
            before = len(DEVICE.launches)
            close(bk.kron(*factors), bk.kron(*host))
            assert len(DEVICE.launches) - before == launches, shapes
    with bk.backends.cuda.kernel_family.without("explicit.tiles"):
        before = len(DEVICE.launches)
        close(bk.kron(*factors), bk.kron(*host))
        assert len(DEVICE.launches) - before == 5
