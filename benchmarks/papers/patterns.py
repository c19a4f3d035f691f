"""The patterns that Gonon, Zheng, Carrivain and Le (2024) measure; their appendix B.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Pattern = tuple[int, int, int, int]  # (a, b, c, d)

BATCH = 128 * 196  # vectors: images times tokens of an image
SIZES = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
A_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
ENERGY_A = (1, 4, 16, 32, 64)
ENERGY_D = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# pairs (b, c) that are left out where a > 1, and of all energies
LEFT_OUT = {(b, c) for pair in ((1024, 256), (512, 128), (256, 64)) for b, c in (pair, pair[::-1])}
MAX_ELEMENTS = 2**31 - 1  # of x, y and the values: indices of 32 bits
TABLE_SET: tuple[Pattern, ...] = (
    (1, 192, 48, 2), (2, 48, 192, 1), (1, 768, 192, 2), (6, 64, 64, 1), (1, 48, 48, 64),
    (1, 64, 64, 16), (4, 128, 128, 4), (16, 64, 64, 16), (1, 256, 1024, 4), (3, 96, 96, 16),
    (1, 512, 512, 4), (64, 64, 64, 4),
)  # fmt: skip


def fits(pattern: Pattern, batch: int = BATCH) -> bool:
    """Whether neither the vectors nor the values have too many elements."""
    a, b, c, d = pattern
    return max(batch * a * c * d, batch * a * b * d, a * b * c * d) <= MAX_ELEMENTS


def _pairs() -> Iterator[tuple[int, int]]:
    for b in SIZES:
        for c in SIZES:
            if b in (c, 4 * c) or c == 4 * b:
                yield b, c


def time_patterns() -> list[Pattern]:
    """The 627 patterns of figure 8, whose times the tables have."""
    found = [(1, b, c, d) for d in A_SIZES for b, c in _pairs()]
    found += [
        (a, b, c, d)
        for a in A_SIZES[1:]
        for d in (4, 16, 64)
        for b, c in _pairs()
        if (b, c) not in LEFT_OUT
    ]
    return [pattern for pattern in found if fits(pattern)]


def energy_patterns() -> list[Pattern]:
    """The 651 patterns whose energies are measured."""
    found = [
        (a, b, c, d)
        for a in ENERGY_A
        for d in ENERGY_D
        for b, c in _pairs()
        if (b, c) not in LEFT_OUT
    ]
    return [pattern for pattern in found if fits(pattern)]


def ratio(pattern: Pattern) -> float:
    """(b + c) / (b c): elements that Algorithm 1 rewrites, over its multiplications."""
    _, b, c, _ = pattern
    return (b + c) / (b * c)


def spread(patterns: Sequence[Pattern], each: int) -> list[Pattern]:
    """``each`` patterns of each ratio, evenly spaced in the order of the matrices' sizes."""
    by_ratio: dict[float, list[Pattern]] = {}
    for pattern in sorted(patterns, key=lambda one: one[0] * one[3] * max(one[1:3])):
        by_ratio.setdefault(ratio(pattern), []).append(pattern)
    found = []
    for key in sorted(by_ratio):
        own = by_ratio[key]
        count = min(each, len(own))
        found += [own[(2 * k + 1) * len(own) // (2 * count)] for k in range(count)]
    return found


def part_of(patterns: Sequence[Pattern], part: tuple[int, int]) -> list[Pattern]:
    """Part I of N, from 1: every N-th pattern, so that each part has all sizes."""
    number, count = part
    return list(patterns[number - 1 :: count])
