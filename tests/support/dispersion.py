"""Rates at which small waves of a plasma fall or grow, from its dispersion relation.

For f_t + v f_x + E f_v = 0, E_x = n - mean(n), a wave exp(i(kx - ωt)) on the state f0(v) has

    1 - (1/k²) ∫ f0'(v) / (v - ω/k) dv = 0,

continued analytically from Im ω > 0. f0 is a sum of polynomials times Gaussians, for which the
integral is known by the Faddeeva function w: ∫ M(v)/(v - z) dv = i √(π/(2θ)) w(z/√(2θ)) for the
Maxwellian M of temperature θ.
"""

import numpy as np
from numpy.polynomial import Polynomial
from scipy.linalg import expm
from scipy.optimize import least_squares
from scipy.special import wofz


class Beam:
    """p(v - drift) exp(-(v - drift)²/(2θ)) / √(2πθ), with a polynomial p."""

    def __init__(self, coefficients=(1.0,), drift=0.0, theta=1.0):
        self.p, self.drift, self.theta = Polynomial(coefficients), drift, theta

    def integral(self, z):
        """∫ f0'(v) / (v - z) dv for a complex z."""
        z = z - self.drift
        slope = self.p.deriv() - self.p * Polynomial([0.0, 1.0]) / self.theta
        # slope(v) = (v - z) q(v) + slope(z), by Horner's rule
        q = np.zeros(len(slope.coef), dtype=complex)
        rest = 0.0
        for k in range(len(slope.coef) - 1, -1, -1):
            q[k], rest = rest, slope.coef[k] + z * rest
        moments = [self._moment(k) for k in range(len(q))]
        scale = np.sqrt(2.0 * self.theta)
        return q @ moments + rest * 1j * np.sqrt(np.pi) / scale * wofz(z / scale)

    def _moment(self, k):
        """∫ v^k M dv = θ^(k/2) (k - 1)!! for even k."""
        if k % 2:
            return 0.0
        return self.theta ** (k // 2) * np.prod(np.arange(k - 1, 0, -2.0))


def dispersion(beams, k, omega):
    """The left side of the dispersion relation."""
    return 1.0 - sum(beam.integral(omega / k) for beam in beams) / k**2


def root(beams, k, start):
    """A root ω of the dispersion relation by the secant method."""
    a, b = start, start * (1.0 + 1e-4) + 1e-5j
    fa, fb = dispersion(beams, k, a), dispersion(beams, k, b)
    for _ in range(60):
        if fb == fa:
            break
        a, b = b, b - fb * (b - a) / (fb - fa)
        fa, fb = fb, dispersion(beams, k, b)
        if not np.isfinite(b) or abs(b - a) < 1e-13 * abs(b):
            break
    return b if np.isfinite(b) and abs(dispersion(beams, k, b)) < 1e-9 else None


def fastest_mode(beams, k):
    """The frequency and rate (ω, γ) of the mode that grows fastest, or falls most slowly."""
    # the secant method runs away from some starts, where w overflows
    starts = [x + 1j * y for x in np.linspace(0.0, 3.0, 13) for y in (-0.4, -0.1, 0.02, 0.2, 0.4)]
    with np.errstate(all="ignore"):
        roots = [root(beams, k, start) for start in starts]
    found = [mode for mode in roots if mode is not None]
    best = max(found, key=lambda mode: mode.imag)
    return abs(best.real), best.imag


def slope_at_maxima(times, norms, window):
    """Rate and frequency (γ, ω) of exp(γt)|cos ωt|: the line through the maxima's logarithms."""
    logs = np.log(norms)
    inner = (logs[1:-1] > logs[:-2]) & (logs[1:-1] > logs[2:])
    at, height = [], []
    for j in np.flatnonzero(inner) + 1:
        a, b, c = np.polyfit(times[j - 1 : j + 2] - times[j], logs[j - 1 : j + 2], 2)
        at.append(times[j] - b / (2 * a))
        height.append(c - b**2 / (4 * a))
    at, height = np.array(at), np.array(height)
    used = (at >= window[0]) & (at <= window[1])
    return np.polyfit(at[used], height[used], 1)[0], np.pi / np.diff(at[used]).mean()


def slope(times, norms, window):
    """Rate γ of exp(γt): the line through all logarithms."""
    used = (times >= window[0]) & (times <= window[1])
    return np.polyfit(times[used], np.log(norms[used]), 1)[0]


def hermite_matrix(k, nu, count=200, *, kind="lenard-bernstein"):
    """The linearised equation with collisions in Hermite functions, c' = A c.

    f = M(v) (1 + Σ_n c_n(t) He_n(v)/√n! e^(ikx)) solves f_t + v f_x + E f_v = C(f), E_x = n - 1,
    to first order in c. He_n M is an eigenfunction of the collisions ν ∂(v f + f_v)/∂v with the
    eigenvalue -νn, and -0 for n < 3 with the moments of f itself. With the kind "bgk" it is -ν for
    n ≥ 3, and there is no field.
    """
    n = np.arange(count)
    transport = np.diag(np.sqrt(n[1:]), 1) + np.diag(np.sqrt(n[1:]), -1)
    rates = np.where(n < 3, 0.0, n if kind == "lenard-bernstein" else 1.0)
    matrix = -1j * k * transport - np.diag(nu * rates)
    if kind == "lenard-bernstein":
        matrix[1, 0] -= 1j / k
    return matrix


def collisional_mode(k, nu, count=200, **options):
    """Frequency and rate (ω, γ) of the mode that oscillates and falls most slowly."""
    modes = np.linalg.eigvals(hermite_matrix(k, nu, count, **options))
    waves = modes[np.abs(modes.imag) > 0.5]
    best = waves[np.argmax(waves.real)]
    return abs(best.imag), best.real


def collisional_field(k, nu, times, count=200, **options):
    """Amplitude of density and field, 1 at t = 0, at equidistant times; c = (1, 0, …) at 0."""
    step = expm((times[1] - times[0]) * hermite_matrix(k, nu, count, **options))
    state, found = np.eye(count)[0].astype(complex), []
    for _ in times:
        found.append(state[0].real)
        state = step @ state
    return np.array(found)


def wave_and_decay(times, amplitudes, window, start):
    """Rate and frequency (γ, ω) of e^(γt)(A cos ωt + B sin ωt) + C e^(δt), by least squares.

    ``start`` is (ω, γ, δ). The linear parameters are eliminated.
    """
    used = (times >= window[0]) & (times <= window[1])
    t, y = times[used], amplitudes[used] / np.abs(amplitudes[used]).max()

    def residual(parameters):
        omega, gamma, delta = parameters
        wave = np.exp(gamma * t)
        basis = np.stack([wave * np.cos(omega * t), wave * np.sin(omega * t), np.exp(delta * t)])
        return basis.T @ np.linalg.lstsq(basis.T, y, rcond=None)[0] - y

    omega, gamma, _ = least_squares(residual, start, xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    return gamma, omega
