"""Krylov methods in NumPy, as textbooks have them: what the fused passes are compared with.

Each yields the iterate and its residual's norm, x0 first, as long as it is asked: nothing says when
to stop, nothing is scaled, and no breakdown is looked for. A and M are matrices, but for the M of
flexible GMRES, which is a function.
"""

import numpy as np
from numpy.linalg import norm


def cg(A, b, x0, M):
    """Conjugate gradients (Hestenes, Stiefel 1952; Saad, algorithm 9.1)."""
    x, r = x0, b - A @ x0
    z = M @ r
    p, rho = z, np.vdot(r, z).real
    while True:
        yield x, norm(r)
        q = A @ p
        alpha = rho / np.vdot(p, q).real
        x = x + alpha * p
        r = r - alpha * q
        z = M @ r
        rho, beta = np.vdot(r, z).real, np.vdot(r, z).real / rho
        p = z + beta * p


def minres(A, b, x0, M):
    """MINRES (Paige, Saunders 1975), with M as Elman, Silvester and Wathen have it."""
    x, v = x0, b - A @ x0
    z, previous = M @ v, 0 * v
    beta = eta = np.sqrt(np.vdot(v, z).real)
    last_beta, c, last_c, s, last_s = 1.0, 1.0, 1.0, 0.0, 0.0
    d = last_d = 0 * v
    while True:
        yield x, norm(b - A @ x)
        # Lanczos: the next v, and the next column of the tridiagonal matrix
        w = A @ z
        alpha = np.vdot(z, w).real / beta**2
        v, previous = w / beta - alpha / beta * v - beta / last_beta * previous, v
        next_z = M @ v
        next_beta = np.sqrt(np.vdot(v, next_z).real)
        # the last two rotations of the column, and the one that makes it triangular
        delta = c * alpha - last_c * s * beta
        rho = np.hypot(delta, next_beta)
        rho2, rho3 = s * alpha + last_c * c * beta, last_s * beta
        last_c, c, last_s, s = c, delta / rho, s, next_beta / rho
        # along the next direction
        d, last_d = (z / beta - rho2 * d - rho3 * last_d) / rho, d
        x = x + c * eta * d
        eta = -s * eta
        z, beta, last_beta = next_z, next_beta, beta


def bicgstab(A, b, x0, M):
    """BiCGSTAB (van der Vorst 1992), with M from the right."""
    x, r = x0, b - A @ x0
    p = shadow = r
    rho = np.vdot(shadow, r)
    while True:
        yield x, norm(r)
        y = M @ p
        v = A @ y
        alpha = rho / np.vdot(shadow, v)
        x = x + alpha * y
        r = r - alpha * v
        y = M @ r
        t = A @ y
        omega = np.vdot(t, r) / np.vdot(t, t)
        x = x + omega * y
        r = r - omega * t
        rho, beta = np.vdot(shadow, r), np.vdot(shadow, r) / rho * alpha / omega
        p = r + beta * (p - omega * v)


def gmres(A, b, x0, M, restart):
    """GMRES(m), M from the right (Saad, algorithm 9.5): flexible GMRES with one M."""
    return fgmres(A, b, x0, lambda v: M @ v, restart)


def fgmres(A, b, x0, M, restart):
    """Flexible GMRES(m) (Saad, algorithm 9.6), by modified Gram-Schmidt and least squares."""
    x = x0
    yield x, norm(b - A @ x)
    while True:
        r = b - A @ x
        V, moves = [r / norm(r)], []
        H = np.zeros((restart + 1, restart), r.dtype)
        for j in range(restart):
            moves.append(M(V[j]))
            w = A @ moves[j]
            for i in range(j + 1):
                H[i, j] = np.vdot(V[i], w)
                w = w - H[i, j] * V[i]
            H[j + 1, j] = norm(w)
            V.append(w / H[j + 1, j])
            small, right = H[: j + 2, : j + 1], norm(r) * np.eye(j + 2)[0]
            y = np.linalg.lstsq(small, right)[0]
            yield x + np.transpose(moves) @ y, norm(right - small @ y)
        x = x + np.transpose(moves) @ y


def block_cg(A, B, start, M):
    """Block conjugate gradients (O'Leary 1980); a norm for each column."""
    X, R = start, B - A @ start
    P = z = M @ R
    while True:
        yield X, norm(R, axis=0)
        Q = A @ P
        rho = z.conj().T @ R
        alpha = np.linalg.solve(P.conj().T @ Q, rho)
        X = X + P @ alpha
        R = R - Q @ alpha
        z = M @ R
        P = z + P @ np.linalg.solve(rho, z.conj().T @ R)


def block_gmres(A, B, start, M):
    """Block GMRES (Saad, section 6.12), M from the right, by QR and least squares; one cycle."""
    k = B.shape[1]
    V, share = np.linalg.qr(B - A @ start)
    yield start, norm(share, axis=0)
    H = np.zeros((k, 0))
    while True:
        W, columns = A @ (M @ V[:, -k:]), 0
        for _ in range(2):  # classical Gram-Schmidt keeps V orthogonal if it is done twice
            columns, W = columns + V.conj().T @ W, W - V @ (V.conj().T @ W)
        Q, below = np.linalg.qr(W)
        H = np.block([[H, columns], [np.zeros((k, H.shape[1])), below]])
        right = np.vstack([share, np.zeros((len(H) - k, k))])
        y = np.linalg.lstsq(H, right)[0]
        yield start + M @ (V @ y), norm(right - H @ y, axis=0)
        V = np.hstack([V, Q])
