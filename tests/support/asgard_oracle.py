"""ASGarD's basis and files, written down naively: what the loader is compared with."""

from fractions import Fraction
from functools import cache

import h5py
import numpy as np
from numpy.polynomial.legendre import legval


@cache
def asgard_wavelets(degree):
    """Polynomials on (-1, 0) and (0, 1) of each wavelet: lowest power first, norm 1."""
    n = degree + 1
    zero, powers = [Fraction(0)] * n, np.eye(n, dtype=int).tolist()
    start = [(power, power) for power in powers]
    start += [([-c for c in power], power) for power in powers]
    done = []
    for left, right in start:
        left, right = list(map(Fraction, left)), list(map(Fraction, right))
        for other in done:
            share = product((left, right), other) / product(other, other)
            left = [a - share * b for a, b in zip(left, other[0], strict=True)]
            right = [a - share * b for a, b in zip(right, other[1], strict=True)]
        assert (left, right) != (zero, zero)
        done.append((left, right))
    wavelets = []
    for j, function in enumerate(reversed(done[n:])):
        scale = (-1) ** j / np.sqrt(float(product(function, function)))
        wavelets.append([scale * np.array(half, dtype=float) for half in function])
    return wavelets


def product(f, g):
    """∫ f g over (-1, 1), f and g being pairs of polynomials."""
    total = Fraction(0)
    for i in range(len(f[0])):
        for j in range(len(f[0])):
            power = i + j + 1
            total += (f[1][i] * g[1][j] - (-1) ** power * f[0][i] * g[0][j]) / power
    return total


def wavelet_values(wavelets, places):
    """Values (points, wavelets) at places in [-1, 1], zero elsewhere."""
    columns = [
        np.where(places < 0, np.polyval(left[::-1], places), np.polyval(right[::-1], places))
        for left, right in wavelets
    ]
    return np.stack(columns, axis=-1) * (np.abs(places) <= 1)[:, None]


def one_dimensional_values(points, lower, upper, cell, degree):
    """Values (points, functions) of one 1-D cell's functions in ASGarD's basis."""
    reference = 2 * (points - lower) / (upper - lower) - 1
    if cell == 0:
        unit = np.eye(degree + 1)
        values = [np.sqrt(2 * j + 1) * legval(reference, unit[j]) for j in range(degree + 1)]
        return np.stack(values, axis=-1) / np.sqrt(upper - lower)
    level = int(cell).bit_length()
    position = cell - 2 ** (level - 1)
    count = 2 ** (level - 1)
    width = (upper - lower) / count
    local = count * (reference + 1) - 2 * position - 1
    return wavelet_values(asgard_wavelets(degree), local) * np.sqrt(2 / width)


def asgard_values(points, ends, cells, coefficients, degree):
    """Values of a state at points, block by block."""
    n, total = degree + 1, np.zeros(len(points))
    blocks = coefficients.reshape(len(cells), *[n] * len(ends))
    for cell, block in zip(cells, blocks, strict=True):
        values = np.broadcast_to(block, (len(points), *block.shape))
        for k in reversed(range(len(ends))):
            shapes = one_dimensional_values(points[:, k], *ends[k], cell[k], degree)
            values = np.einsum("p...j,pj->p...", values, shapes)
        total += values
    return total


def write_090(path, ends, cells, coefficients, degree, *, time=0.5, dtype=np.float64, fields=()):
    """A file in the layout of ASGarD 0.9.0; fields are (name, cells, coefficients)."""
    with h5py.File(path, "w") as file:
        file["asgard file version"] = np.int32(1)
        file["title"], file["subtitle"] = "a title", "a subtitle"
        file["degree"], file["num_dims"] = np.int32(degree), np.int32(len(ends))
        file["num_pos"], file["num_vel"] = np.int32(1), np.int32(len(ends) - 1)
        for k in range(len(ends)):
            file[f"dim{k}_name"] = f"x{k + 1}"
        file["domain_range"] = np.array(ends, dtype=float).ravel()
        file["grid_indexes"] = np.asarray(cells, dtype=np.int32).ravel()
        write_compressed(file, "state", np.asarray(coefficients, dtype=dtype).ravel())
        file["dtime_time"] = float(time)
        file["num_aux_fields"] = np.int32(len(fields))
        for i, (name, grid, data) in enumerate(fields):
            file[f"aux_field_{i}_name"] = name
            file[f"aux_field_{i}_grid"] = np.asarray(grid, dtype=np.int32).ravel()
            file[f"aux_field_{i}_dims"] = np.int32(np.shape(grid)[1])
            write_compressed(file, f"aux_field_{i}_data", np.ravel(data))


def write_2024(path, ends, cells, coefficients, degree, *, time=0.5, dt=0.25, stepped=False):
    """A file in ASGarD's layout of 2024."""
    levels = np.frexp(np.asarray(cells, dtype=float))[1]
    positions = np.where(levels == 0, 0, cells - (1 << levels) // 2)
    with h5py.File(path, "w") as file:
        file["pde"] = "a title"
        file["degree"], file["ndims"] = np.int32(degree + 1), np.int32(len(ends))
        file["time"], file["dt"] = float(time), float(dt)
        for k, (lower, upper) in enumerate(ends):
            file[f"dim{k}_min"], file[f"dim{k}_max"] = float(lower), float(upper)
        write_compressed(file, "elements", np.hstack((levels, positions)).astype("i4").ravel())
        write_compressed(file, "soln", np.ravel(coefficients))
        file["timings/gen_coefficients"] = 1.0
        if stepped:
            file["timings/explicit_time_advance"] = 1.0


def write_compressed(file, name, values):
    file.create_dataset(name, data=values, chunks=(min(64, values.size),), compression=9)
