"""Names that the command lists and completes without the libraries that they are names of.

Tests compare them with the gallery, the steppers, the preconditioners and the solvers.
"""

from __future__ import annotations

from typing import get_args

from batchkron.names import PreconditionerName, SolverName, StepperName

__all__ = ["GALLERY", "PRECONDITIONERS", "SOLVERS", "STEPPERS"]

GALLERY = {
    "continuity-1d": "[-1, 1], periodic, f_t + f_x = s",
    "continuity-2d": "[-1, 1] × [-2, 2], periodic, f_t + f_x + f_y = s",
    "continuity-3d": "[-1, 1] × [-2, 2] × [-3, 3], periodic, f_t + f_x + f_y + f_z = s",
    "continuity-6d": "half-widths 1, 2, 3, 10, 20, 30, periodic, f_t + (1, 1, 3, 4, 3, 2)·∇f = s",
    "advection-1d": "[0, π], f_t = -2 f_x - 2 sin x; inflow f = 1 at 0, outflow at π",
    "diffusion-1d": "[0, 1], f_t = Δf, Dirichlet data from the exact solution",
    "diffusion-1d-neumann": "[0, 1], f_t = Δf, Neumann data from the exact solution",
    "diffusion-2d": "[0, 1]², f_t = Δf, Dirichlet data from the exact solution",
    "diffusion-2d-neumann": "[0, 1]², f_t = Δf, Neumann data from the exact solution",
    "diffusion-3d": "[0, 1]³, f_t = Δf, Dirichlet data from the exact solution",
    "diffusion-3d-neumann": "[0, 1]³, f_t = Δf, Neumann data from the exact solution",
    "burgers-1d": ("[0, 2π], periodic, f_t + (f²/2)_x = 0; f = sin x at t = 0"),
    "burgers-2d": ("[0, 2π]², periodic, f_t + (f²/2)_x + (f²/2)_y = 0; f = sin(x + y) at t = 0"),
    "fisher": ("[-12, 14], f_t = f_xx + f (1 - f), nothing flows at the ends; a front at t = 0"),
    "allen-cahn": ("[0, 2π]², periodic, f_t = epsilon² Δf + f - f³; a smooth f at t = 0"),
    "porous-medium": ("[-8, 8], f_t = (f²)_xx, nothing flows at the ends; (1 - x²/12)₊ at t = 0"),
    "cooling-1d": ("[0, 1], f_t = f_xx, ∂f/∂n + r f = 0 with r = k tan(k/2)"),
    "diffusivity-2d": ("[0, 2π]², periodic, f_t = ∇·(k ∇f) - f + s, k = 2 + sin x cos y"),
    "diffusion-2d-anisotropic": (
        "[0, 1]², f_t = ∂(k ∂f/∂x)/∂x + 10⁻⁴ ∂²f/∂y² + s, k = 10^(4x - 4), f = 0 at the edge"
    ),
    "advection-diffusion-2d": "[-1, 1]², periodic, f_t + (1, ½)·∇f = 0.05 Δf",
    "pitch-angle-e": "[-1, 1], f_t = -∂((1 - z²) f)/∂z, acceleration by a field; f = 1 at t = 0",
    "pitch-angle-e-gaussian": (
        "[-1, 1], f_t = -∂((1 - z²) f)/∂z, acceleration by a field; f = exp(-((z + "
        "0.3)/0.1)²) at t = 0"
    ),
    "pitch-angle-c": (
        "[-1, 1], f_t = ∂((1 - z²) ∂f/∂z)/∂z, scattering by collisions; nothing flows at the ends"
    ),
    "runaway": (
        "p in [0, 10], z in [-1, 1], dV = p²; collisions, and acceleration by the field "
        "E; exp(-2√(1+δ²p²)/δ²) at t = 0"
    ),
    "runaway-collisions": (
        "p in [0, 10], z in [-1, 1], dV = p²; energy diffusion 1/√(1+p²), drag p/(1+p²), "
        "pitch-angle scattering 1/(1+p²), with a source"
    ),
    "landau-1x1v": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) M(v) at t = 0"
    ),
    "landau-strong": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) M(v), a "
        "large wave at t = 0"
    ),
    "two-stream-linear": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) ½(M(v - "
        "drift) + M(v + drift)) at t = 0"
    ),
    "two-stream": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) v² "
        "exp(-v²)/√π on [-π/k, π/k] × [-2π, 2π] at t = 0"
    ),
    "two-stream-warm": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) v² "
        "exp(-v²/2)/√(2π) at t = 0"
    ),
    "bump-on-tail": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) (2/7)(1 "
        "+ 5v²) exp(-v²/2)/√(2π) at t = 0"
    ),
    "landau-1x2v": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) M(v1) "
        "M(v2) at t = 0"
    ),
    "landau-1x3v": (
        "f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = (1 + amplitude cos kx) M(v1) "
        "M(v2) M(v3) at t = 0"
    ),
    "landau-2x2v": (
        "f_t + v1 f_x + v2 f_y + E · ∇_v f = 0, div E = n - mean(n); f = (1 + amplitude "
        "(cos kx + cos ky)) M(v1) M(v2) at t = 0"
    ),
    "relaxation-1x1v": (
        "f_t = C(f), collisions with u, θ of f; Maxwellians of temperature ½ at t = 0, for all x"
    ),
    "relaxation-1x2v": (
        "f_t = C(f), collisions with u, θ of f; Maxwellians of temperature ½ at t = 0, for all x"
    ),
    "relaxation-1x3v": (
        "f_t = C(f), collisions with u, θ of f; Maxwellians of temperature ½ at t = 0, for all x"
    ),
    "collisional-landau-1x1v": (
        "f_t + v f_x + E f_v = C(f), E_x = n - mean(n); f = (1 + amplitude cos kx) M(v) at t = 0"
    ),
    "bgk-1x1v": (
        "f_t + v f_x = ν (M - f) with density, velocity, temperature of f; f = (1 + "
        "amplitude cos kx) M(v) at t = 0"
    ),
}
"""Problems of the gallery and their equations."""

STEPPERS: tuple[str, ...] = get_args(StepperName)
PRECONDITIONERS: tuple[str, ...] = get_args(PreconditionerName)
SOLVERS: tuple[str, ...] = get_args(SolverName)
