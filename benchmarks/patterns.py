"""Patterns of Kronecker-sparse matrices: those of Gonon, Zheng, Carrivain and Le (2024).

They are in the appendix B.1 of the paper.
"""

from benchmarks.core.tables import groups

Pattern = tuple[int, int, int, int]  # (a, b, c, d)
LAYOUTS = ("batch-first", "batch-last")

BATCH = 128 * 196  # vectors: images times tokens of an image
SIZES = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
A_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
ENERGY_A = (1, 4, 16, 32, 64)
ENERGY_D = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# pairs (b, c) that are left out where a > 1, and of all energies
LEFT_OUT = {(b, c) for pair in ((1024, 256), (512, 128), (256, 64)) for b, c in (pair, pair[::-1])}
MAX_ELEMENTS = 2**31 - 1  # of x, y and the values: indices of 32 bits


def fits(pattern, batch=BATCH):
    a, b, c, d = pattern
    return max(batch * a * c * d, batch * a * b * d, a * b * c * d) <= MAX_ELEMENTS


def _pairs():
    for b in SIZES:
        for c in SIZES:
            if b in (c, 4 * c) or c == 4 * b:
                yield b, c


def generated():
    return [
        (a, b, c, d)
        for a in A_SIZES
        for d in (A_SIZES if a == 1 else (4, 16, 64))
        for b, c in _pairs()
    ]


def time_patterns():
    return [
        pattern
        for pattern in generated()
        if (pattern[0] == 1 or pattern[1:3] not in LEFT_OUT) and fits(pattern)
    ]


def by_ratio(patterns):
    return [own for _, own in sorted(groups(patterns, ratio).items())]


def energy_patterns():
    found = [
        (a, b, c, d)
        for a in ENERGY_A
        for d in ENERGY_D
        for b, c in _pairs()
        if (b, c) not in LEFT_OUT
    ]
    return [pattern for pattern in found if fits(pattern)]


def ratio(pattern):
    """(b + c) / (b c): elements that Algorithm 1 rewrites, over its multiplications."""
    _, b, c, _ = pattern
    return (b + c) / (b * c)


def fair_order(patterns, part=(1, 1)):
    """Return part I of N, from 1, in an order whose beginning is a fair sample of the whole.

    The patterns are sorted by their ratio and their size, of which the part has every N-th one, and
    taken by their places with reversed bits (van der Corput's sequence): first one of each half,
    then of each quarter, and so on.
    """
    number, count = part
    own = sorted(patterns, key=lambda one: (ratio(one), one[0] * one[3] * max(one[1:3]), one))
    own = own[number - 1 :: count]
    bits = len(own).bit_length()
    places = (int(f"{k:0{bits}b}"[::-1], 2) for k in range(1 << bits))
    return [own[place] for place in places if place < len(own)]
