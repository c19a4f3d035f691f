"""Lists of patterns (a, b, c, d) that are known under a name.

They are those of table 1 of Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse
matrices" (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from batchkron.kronecker_sparse.sizes import checked_size, exponent
from batchkron.spec.kron_sparse import Pattern, as_pattern


def dense(M: int, N: int) -> list[Pattern]:
    """Return the pattern of a dense M × N matrix, (1, M, N, 1).

    Parameters
    ----------
    M, N : int
        Numbers of rows and columns, at least 1.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer, or less than 1.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import dense
    >>> dense(3, 5)
    [Pattern(a=1, b=3, c=5, d=1)]
    """
    return [Pattern(1, checked_size(M, "M"), checked_size(N, "N"), 1)]


def low_rank(M: int, N: int, rank: int) -> list[Pattern]:
    """Return the patterns of an M × N matrix of a rank r: (1, M, r, 1), (1, r, N, 1).

    Parameters
    ----------
    M, N, rank : int
        At least 1.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer, or less than 1.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import low_rank
    >>> [tuple(p) for p in low_rank(30, 50, 2)]
    [(1, 30, 2, 1), (1, 2, 50, 1)]
    """
    M, N, r = checked_size(M, "M"), checked_size(N, "N"), checked_size(rank, "rank")
    return [Pattern(1, M, r, 1), Pattern(1, r, N, 1)]


def square_dyadic(N: int) -> list[Pattern]:
    """Return the patterns of a butterfly matrix of N = 2^L: (2^(l-1), 2, 2, 2^(L-l)), l = 1 … L.

    They are those of the discrete Fourier and Hadamard transforms.

    Parameters
    ----------
    N : int
        A power of two, at least 2.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If N is not a power of two, or less than 2.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import square_dyadic
    >>> [tuple(p) for p in square_dyadic(8)]
    [(1, 2, 2, 4), (2, 2, 2, 2), (4, 2, 2, 1)]
    """
    return block_butterfly(N, 1)


def kaleidoscope(N: int) -> list[Pattern]:
    """Return the patterns of `square_dyadic`, followed by the same in the opposite order.

    Parameters
    ----------
    N : int
        A power of two, at least 2.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If N is not a power of two, or less than 2.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import kaleidoscope
    >>> [tuple(p) for p in kaleidoscope(4)]
    [(1, 2, 2, 2), (2, 2, 2, 1), (2, 2, 2, 1), (1, 2, 2, 2)]
    """
    down = square_dyadic(N)
    return [*down, *reversed(down)]


def block_butterfly(N: int, block: int) -> list[Pattern]:
    """Return the patterns of a butterfly of blocks: (2^(l-1), 2 t, 2 t, 2^(L-l)), l = 1 … L.

    Parameters
    ----------
    N : int
        The number of rows and columns, N = 2^L t with L at least 1.
    block : int
        The size t of a block.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer, or N / t is not a power of two, at least 2.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import block_butterfly
    >>> [tuple(p) for p in block_butterfly(48, 12)]
    [(1, 24, 24, 2), (2, 24, 24, 1)]
    """
    N, t = checked_size(N, "N"), checked_size(block, "block")
    count = exponent(N, t)
    return [Pattern(2**level, 2 * t, 2 * t, 2 ** (count - 1 - level)) for level in range(count)]


def monarch(M: int, N: int, p: int) -> list[Pattern]:
    """Return the patterns of a Monarch matrix, (1, M/p, m/p, p), (p, m/p, N/p, 1), m = min(M, N).

    Parameters
    ----------
    M, N : int
        Numbers of rows and columns.
    p : int
        The number of blocks, a divisor of M and N. `factorise` needs p² to divide min(M, N).

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer, less than 1, or p does not divide M and N.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import monarch
    >>> [tuple(p) for p in monarch(1536, 384, 4)]
    [(1, 384, 96, 4), (4, 96, 96, 1)]
    """
    M, N, p = checked_size(M, "M"), checked_size(N, "N"), checked_size(p, "p")
    if M % p or N % p:
        raise ValueError(f"p is {p}; expected a divisor of M and N, {M} and {N}")
    middle = min(M, N) // p
    return [Pattern(1, M // p, middle, p), Pattern(p, middle, N // p, 1)]


def deformable(chain: Sequence[Sequence[int]]) -> list[Pattern]:
    """Return any list of patterns after checking that neighbours multiply, a c d = a' b' d'.

    Parameters
    ----------
    chain : sequence of four int each
        The patterns (a, b, c, d) of K_1 to K_L.

    Returns
    -------
    list of Pattern

    Raises
    ------
    TypeError, ValueError
        If the chain is empty, a pattern is not four integers of at least 1, or the columns of one
        are not the rows of the next.

    Examples
    --------
    >>> from batchkron.kronecker_sparse import deformable
    >>> [p.shape for p in deformable([(1, 2, 3, 4), (3, 4, 5, 1)])]
    [(8, 12), (12, 15)]
    """
    checked = [as_pattern(pattern, f"chain[{k}]", 1) for k, pattern in enumerate(chain)]
    if not checked:
        raise ValueError("chain is empty; expected at least one pattern")
    for k, (left, right) in enumerate(pairwise(checked)):
        if left.shape[1] != right.shape[0]:
            raise ValueError(
                f"chain[{k}] is {tuple(left)} and chain[{k + 1}] is {tuple(right)}: "
                f"{left.shape[1]} columns, but {right.shape[0]} rows"
            )
    return checked
