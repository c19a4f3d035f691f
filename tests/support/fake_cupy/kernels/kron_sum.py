"""Back substitution in Kronecker sums of triangles."""

import numpy as np

from batchkron.backends.cuda.kron_sum.back_substitution import back_substitution_arguments
from fake_cupy.memory import at


def substitute_back(kernel, address):
    """What a step of back substitution does."""
    given = at(address, (), back_substitution_arguments(kernel.dtype, *kernel.numbers))
    sizes = given["sizes"].tolist()
    x = at(given["x"], (*sizes, int(given["inner"])), kernel.dtype)
    matrices = [
        at(one, (n, n), kernel.dtype) for one, n in zip(given["triangles"], sizes, strict=True)
    ]
    for index in np.ndindex(*sizes):
        if sum(index) != given["level"]:
            continue
        total, divisor = 0, given["shift"]
        for k, (place, matrix) in enumerate(zip(index, matrices, strict=True)):
            divisor = divisor + matrix[place, place]
            fibre = x[(*index[:k], slice(place + 1, None), *index[k + 1 :])]
            total = total + matrix[place, place + 1 :] @ fibre
        x[index] = (x[index] - total) / divisor
