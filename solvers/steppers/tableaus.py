"""The tableaus of the Runge-Kutta methods that `evolve` knows by name."""

from __future__ import annotations

import math

from .dop853 import dop853
from .tableau import Tableau

__all__ = ["TABLEAUS"]


def _ssp_rk2() -> Tableau:
    return Tableau(
        "ssp-rk2",
        2,
        [1 / 2, 1 / 2],
        explicit=[[0, 0], [1, 0]],
        embedded=[1, 0],
        embedded_order=1,
        source="C.-W. Shu, S. Osher, J. Comput. Phys. 77 (1988), eq. (2.16)",
    )


def _ssp_rk43() -> Tableau:
    half, sixth = 1 / 2, 1 / 6
    return Tableau(
        "ssp-rk43",
        3,
        [sixth, sixth, sixth, half],
        explicit=[[0, 0, 0, 0], [half, 0, 0, 0], [half, half, 0, 0], [sixth, sixth, sixth, 0]],
        embedded=[1 / 4, 1 / 4, 1 / 4, 1 / 4],
        embedded_order=2,
        source="J. F. B. M. Kraaijevanger, BIT 31 (1991); embedded: S. Conde, I. Fekete, "
        "J. N. Shadid, Embedded pairs for optimal explicit SSP Runge-Kutta methods, J. Comput. "
        "Appl. Math. 412 (2022)",
    )


def _bogacki_shampine() -> Tableau:
    return Tableau(
        "bogacki-shampine",
        3,
        [2 / 9, 1 / 3, 4 / 9, 0],
        explicit=[[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 3 / 4, 0, 0], [2 / 9, 1 / 3, 4 / 9, 0]],
        embedded=[7 / 24, 1 / 4, 1 / 3, 1 / 8],
        embedded_order=2,
        source="P. Bogacki, L. F. Shampine, A 3(2) pair of Runge-Kutta formulas, Appl. Math. "
        "Lett. 2 (1989)",
    )


def _dormand_prince() -> Tableau:
    last = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0]
    return Tableau(
        "dormand-prince",
        5,
        last,
        explicit=[
            [0, 0, 0, 0, 0, 0, 0],
            [1 / 5, 0, 0, 0, 0, 0, 0],
            [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
            [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
            [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
            [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
            last,
        ],
        embedded=[5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40],
        embedded_order=4,
        dense=[
            [1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432],
            [0, 0, 0, 0],
            [0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799],
            [0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072],
            [
                0,
                127303824393 / 49829197408,
                -318862633887 / 49829197408,
                701980252875 / 199316789632,
            ],
            [0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],
            [0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423],
        ],
        source="J. R. Dormand, P. J. Prince, A family of embedded Runge-Kutta formulae, J. Comput. "
        "Appl. Math. 6 (1980); between steps L. F. Shampine, Math. Comput. 46 (1986)",
    )


def _sdirk2() -> Tableau:
    g = 1 - math.sqrt(0.5)
    return Tableau(
        "sdirk2",
        2,
        [1 - g, g],
        implicit=[[g, 0], [1 - g, g]],
        embedded=[1 / 2, 1 / 2],
        embedded_order=1,
        source="R. Alexander, Diagonally implicit Runge-Kutta methods for stiff O.D.E.'s, SIAM J. "
        "Numer. Anal. 14 (1977); the embedded weights are a choice",
    )


def _sdirk3() -> Tableau:
    g = 0.4358665215084589994160194511935568425
    b1 = -(6 * g * g - 16 * g + 1) / 4
    b2 = (6 * g * g - 20 * g + 5) / 4
    second = (1 - 2 * g) / (1 - g)
    return Tableau(
        "sdirk3",
        3,
        [b1, b2, g],
        implicit=[[g, 0, 0], [(1 - g) / 2, g, 0], [b1, b2, g]],
        embedded=[1 - second, second, 0],
        embedded_order=2,
        source="R. Alexander, Diagonally implicit Runge-Kutta methods for stiff O.D.E.'s, SIAM J. "
        "Numer. Anal. 14 (1977); the embedded weights solve the conditions of order 2",
    )


def _wso_sdirk3() -> Tableau:
    """Return a method of weak stage order 3: b Aʲ (A c^(k-1) - c^k / k) = 0 for all j, k ≤ 3.

    With γ = 0.4358665…, of the L-stable methods of order 3, the row vectors b Aʲ have a space of
    three dimensions if the vectors τ_k = A c^(k-1) - c^k / k, k = 2 and 3, are in the span of τ_2
    and v = (A - γ) τ_2, and (A - γ) v = 0. This asks for c_2 + c_3 = 4 γ and a_32 = 0, and leaves
    c_2 and c_4 free: here 1 and 0, for small coefficients. The embedded weights are in the space of
    the b Aʲ, too, so that the estimate keeps its order; they are a choice.
    """
    g = 0.435866521508459
    last = [-1.5178856163188459, -1.3788459541492055, 2.83076120862571, 0.6301038403338841, g]
    return Tableau(
        "wso-sdirk3",
        3,
        last,
        implicit=[
            [g, 0, 0, 0, 0],
            [1 - g, g, 0, 0, 0],
            [0.307599564525377, 0, g, 0, 0],
            [-0.7516649005307919, -0.3786612162238397, 0.6944595952461726, g, 0],
            last,
        ],
        embedded=[
            0.8832747613550609,
            0.43016446477240367,
            -0.701810841492986,
            0.1817534184450646,
            0.20661819692045857,
        ],
        embedded_order=2,
        source="a solution of the conditions of D. I. Ketcheson, B. Seibold, D. Shirokoff, "
        "D. Zhou, DIRK schemes with high weak stage order, Lect. Notes Comput. Sci. Eng. 134 "
        "(2020)",
    )


_ROOT = math.sqrt(2)
_GAMMA2 = 1 - 1 / _ROOT
_WEIGHTS2 = [1 / (2 * _ROOT), 1 / (2 * _ROOT), _GAMMA2]
_IMPLICIT2 = [[0, 0, 0], [_GAMMA2, _GAMMA2, 0], _WEIGHTS2]
_EMBEDDED2 = [(4 - _ROOT) / 8, (4 - _ROOT) / 8, 1 / (2 * _ROOT)]
_SOURCE2 = (
    "F. X. Giraldo, J. F. Kelly, E. M. Constantinescu, Implicit-explicit formulations of a "
    "three-dimensional nonhydrostatic unified model of the atmosphere, SIAM J. Sci. Comput. 35 "
    "(2013), ARK2(1)3L[2]SA"
)

_GAMMA3 = 1767732205903 / 4055673282236
_WEIGHTS3 = [
    1471266399579 / 7840856788654,
    -4482444167858 / 7529755066697,
    11266239266428 / 11593286722821,
    _GAMMA3,
]
_IMPLICIT3 = [
    [0, 0, 0, 0],
    [_GAMMA3, _GAMMA3, 0, 0],
    [2746238789719 / 10658868560708, -640167445237 / 6845629431997, _GAMMA3, 0],
    _WEIGHTS3,
]
_EMBEDDED3 = [
    2756255671327 / 12835298489170,
    -10771552573575 / 22201958757719,
    9247589265047 / 10645013368117,
    2193209047091 / 5459859503100,
]
_SOURCE3 = (
    "C. A. Kennedy, M. H. Carpenter, Additive Runge-Kutta schemes for "
    "convection-diffusion-reaction equations, Appl. Numer. Math. 44 (2003), ARK3(2)4L[2]SA"
)


def _esdirk2() -> Tableau:
    return Tableau(
        "esdirk2",
        2,
        _WEIGHTS2,
        implicit=_IMPLICIT2,
        embedded=_EMBEDDED2,
        embedded_order=1,
        source=f"TR-BDF2, the implicit part of {_SOURCE2}",
    )


def _esdirk3() -> Tableau:
    return Tableau(
        "esdirk3",
        3,
        _WEIGHTS3,
        implicit=_IMPLICIT3,
        embedded=_EMBEDDED3,
        embedded_order=2,
        source=f"the implicit part of {_SOURCE3}",
    )


def _imex_euler() -> Tableau:
    return Tableau(
        "imex-euler",
        1,
        [0, 1],
        explicit=[[0, 0], [1, 0]],
        implicit=[[0, 0], [0, 1]],
        source="U. M. Ascher, S. J. Ruuth, R. J. Spiteri, Appl. Numer. Math. 25 (1997), (1, 2, 1) "
        "in section 2.2",
    )


def _ark2() -> Tableau:
    second = (3 + 2 * _ROOT) / 6
    return Tableau(
        "ark2",
        2,
        _WEIGHTS2,
        explicit=[[0, 0, 0], [2 - _ROOT, 0, 0], [1 - second, second, 0]],
        implicit=_IMPLICIT2,
        embedded=_EMBEDDED2,
        embedded_order=1,
        source=_SOURCE2,
    )


def _ark3() -> Tableau:
    return Tableau(
        "ark3",
        3,
        _WEIGHTS3,
        explicit=[
            [0, 0, 0, 0],
            [1767732205903 / 2027836641118, 0, 0, 0],
            [5535828885825 / 10492691773637, 788022342437 / 10882634858940, 0, 0],
            [
                6485989280629 / 16251701735622,
                -4246266847089 / 9704473918619,
                10755448449292 / 10357097424841,
                0,
            ],
        ],
        implicit=_IMPLICIT3,
        embedded=_EMBEDDED3,
        embedded_order=2,
        source=_SOURCE3,
    )


TABLEAUS: tuple[Tableau, ...] = (
    _ssp_rk2(),
    _ssp_rk43(),
    _bogacki_shampine(),
    _dormand_prince(),
    dop853(),
    _sdirk2(),
    _sdirk3(),
    _esdirk2(),
    _esdirk3(),
    _wso_sdirk3(),
    _imex_euler(),
    _ark2(),
    _ark3(),
)
