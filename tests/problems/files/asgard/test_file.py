"""Result files of ASGarD: the state against exact solutions and an independent evaluation."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from asgard_oracle import asgard_values, write_090, write_2024

from batchkron import ProblemFileError
from batchkron.problems import (
    ExactSolution,
    SeparableVector,
    load_problem,
    make,
    save_problem,
    time,
)
from batchkron.problems.discretization.basis.projection import project, remainder_gram
from batchkron.problems.discretization.basis.quadrature import cell_points, gauss_rule
from batchkron.problems.files.asgard.file import load_asgard
from batchkron.problems.files.asgard.state import AsgardState
from batchkron.problems.semidiscrete.exact.error import tail_matrix
from batchkron.storage import identify, load_result

DATA = Path(__file__).parents[3] / "data" / "asgard"
CONTINUITY = DATA / "layout090_continuity_2d.h5"
ADAPTIVE = DATA / "layout090_continuity_2d_adaptive.h5"
KINETIC = DATA / "layout090_bgk.h5"
DIFFUSION = DATA / "layout2024_diffusion_2_step20.h5"

CELLS = np.array([[3, 0], [0, 0], [1, 0], [0, 1], [2, 0], [6, 1], [0, 2], [1, 5]])
ENDS = ((-1.0, 3.0), (0.5, 1.25))


def cosine(s):
    return np.cos(np.pi * s)


def double_sine(s):
    return np.sin(2 * np.pi * s)


@pytest.fixture(params=[False, True], ids=["untrusted", "trusted"])
def trusted(request):
    return request.param


def measured_error(state, functions, amplitude):
    """Root of ∫ (u - f)² from values of u at Gauss points of the finest cells."""
    nodes, weights = gauss_rule(4)
    lines, measures = [], []
    for axis, level in zip(state.axes, state.grid.levels, strict=True):
        lines.append(cell_points(axis, level, nodes).ravel())
        measures.append(np.tile(weights * axis.cell_width(level) / 2, 1 << level))
    x, y = np.meshgrid(*lines, indexing="ij")
    exact = amplitude * functions[0](x) * functions[1](y)
    values = state.evaluate(np.column_stack((x.ravel(), y.ravel()))).reshape(exact.shape)
    return np.sqrt(np.einsum("ij,i,j->", (values - exact) ** 2, *measures))


def own_error(state, functions, amplitude):
    """Root of ‖c - Pf‖² + ‖f - Pf‖² from the coefficients and f's projection."""
    sides = list(zip(functions, state.axes, state.grid.levels, strict=True))
    factors = [project(f, axis, level, state.degree) for f, axis, level in sides]
    vector = SeparableVector(tuple(factors), time.constant(amplitude))
    remainders = np.stack([remainder_gram([f], axis, lvl, state.degree) for f, axis, lvl in sides])
    exact = ExactSolution((vector,), remainders)
    n = state.degree + 1
    tail = amplitude**2 * tail_matrix(exact, state.grid, (n, n))[0, 0]
    blocks = [f.reshape(-1, n)[state.grid.cells[:, k]] for k, f in enumerate(factors)]
    projected = amplitude * np.einsum("bi,bj->bij", *blocks).ravel()
    return np.sqrt(((state.coefficients - projected) ** 2).sum() + tail)


def test_continuity_2d_agrees_with_the_exact_solution():
    """The L2 error is that of batchkron's own run of this problem: 6.707e-4."""
    state = load_asgard(CONTINUITY)
    assert (state.name, state.subtitle, state.layout) == ("Example continuity 2D", "", "0.9.0")
    assert state.time == pytest.approx(0.1)
    assert [(axis.name, axis.lower, axis.upper) for axis in state.axes] == [
        ("x1", -1, 1),
        ("x2", -2, 2),
    ]
    problem = make("continuity-2d", level=6, degree=2)
    assert np.array_equal(state.grid.cells, problem.grid.cells)
    assert problem.l2_error(state.coefficients, state.time) == pytest.approx(6.707e-4, rel=1e-4)
    functions = (cosine, double_sine)
    measured = measured_error(state, functions, np.sin(2 * state.time))
    assert measured == pytest.approx(6.707e-4, rel=1e-3)


def test_an_adaptive_grid():
    state = load_asgard(ADAPTIVE)
    assert (state.grid.num_cells, state.grid.levels) == (96, (3, 4))
    assert state.grid.kind == "custom"
    functions, amplitude = (cosine, double_sine), np.sin(2 * state.time)
    own = own_error(state, functions, amplitude)
    assert own == pytest.approx(0.01212, rel=1e-3)
    assert measured_error(state, functions, amplitude) == pytest.approx(own, rel=1e-3)


def test_the_layout_of_2024_and_its_time():
    """Backward Euler's error is ½ λ² dt t = 0.4 %; a time wrong by one step would give 2 %."""
    state = load_asgard(DIFFUSION)
    assert (state.name, state.layout, state.degree) == ("diffusion_2", "2024", 2)
    assert state.time == pytest.approx(0.02)
    assert np.array_equal(state.grid.cells, make("diffusion-2d", level=4, degree=2).grid.cells)
    functions = (cosine, cosine)
    amplitude = np.exp(-2 * np.pi**2 * state.time)
    own = own_error(state, functions, amplitude)
    assert own < 0.004 * amplitude / 2
    assert measured_error(state, functions, amplitude) == pytest.approx(own, rel=1e-3)
    earlier = np.exp(-2 * np.pi**2 * 0.019)
    assert own_error(state, functions, earlier) > 0.015 * amplitude / 2


def test_auxiliary_fields(rng):
    """State plus final perturbation is the Maxwellian; the initial one -1e-4 cos(x/2) times it."""
    state = load_asgard(KINETIC)
    assert [axis.name for axis in state.axes] == ["x1", "v1"]
    assert state.subtitle == "collision frequency 1.000000 with poisson"
    initial, final = state.fields
    assert (initial.name, final.name) == ("initial perturbation", "final perturbation")
    velocity = state.axes[1]
    maxwellian = project(lambda v: np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi), velocity, 6, 2)
    total = np.zeros((state.grid.num_cells, 3, 3))
    own = state.grid.cells[:, 0] == 0
    blocks = maxwellian.reshape(-1, 3)[state.grid.cells[own, 1]]
    total[own, 0] = np.sqrt(state.axes[0].length) * blocks
    assert np.array_equal(final.grid.cells, state.grid.cells)
    assert np.allclose(state.coefficients + final.coefficients, total.ravel(), rtol=0, atol=1e-13)
    points = np.column_stack((rng.uniform(-6.2, 6.2, 500), rng.uniform(-6, 6, 500)))
    perturbation = np.cos(points[:, 0] / 2) * np.exp(-(points[:, 1] ** 2) / 2) / np.sqrt(2 * np.pi)
    assert np.allclose(initial.evaluate(points), -1e-4 * perturbation, rtol=0, atol=1e-6)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_moments_are_integrals_of_the_state(rng, power):
    state = load_asgard(KINETIC)
    assert sorted(state.moments) == [(0,), (1,), (2,)]
    moment = state.moments[(power,)]
    assert (moment.name, moment.axes) == (f"__moment_{power}xx", state.axes[:1])
    nodes, weights = gauss_rule(4)
    line = cell_points(state.axes[1], state.grid.levels[1], nodes).ravel()
    measure = np.tile(weights * state.axes[1].cell_width(state.grid.levels[1]) / 2, 64)
    places = rng.uniform(-6.2, 6.2, 20)
    points = np.column_stack((np.repeat(places, line.size), np.tile(line, places.size)))
    expected = state.evaluate(points).reshape(places.size, -1) @ (measure * line**power)
    assert np.abs(expected).max() > 1e-6
    assert np.allclose(moment.evaluate(places[:, None]), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("degree", [0, 1, 2, 4])
@pytest.mark.parametrize("write", [write_090, write_2024])
def test_any_state_against_an_oracle(tmp_path, rng, degree, write, trusted):
    """Random coefficients in ASGarD's basis, cells in any order, by both layouts."""
    coefficients = rng.standard_normal((len(CELLS), (degree + 1) ** 2))
    path = tmp_path / "file.h5"
    write(path, ENDS, CELLS, coefficients, degree)
    state = load_asgard(path, trusted=trusted)
    assert (state.name, state.time, state.degree) == ("a title", 0.5, degree)
    assert state.grid.levels == (3, 3)
    points = np.column_stack([rng.uniform(*end, 200) for end in ENDS])
    expected = asgard_values(points, ENDS, CELLS, coefficients, degree)
    assert np.allclose(state.evaluate(points), expected, rtol=0, atol=1e-11)
    assert not state.coefficients.flags.writeable


def test_three_dimensions_against_an_oracle(tmp_path, rng):
    ends = (*ENDS, (0.0, 2.0))
    cells = np.array([[0, 0, 0], [1, 0, 3], [0, 2, 1]])
    coefficients = rng.standard_normal((3, 8))
    write_090(tmp_path / "file.h5", ends, cells, coefficients, 1)
    state = load_asgard(tmp_path / "file.h5")
    points = np.column_stack([rng.uniform(*end, 50) for end in ends])
    expected = asgard_values(points, ends, cells, coefficients, 1)
    assert np.allclose(state.evaluate(points), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("stepped", "expected"), [(False, 0.5), (True, 0.75)])
def test_a_step_of_2024_ends_after_the_time_in_the_file(tmp_path, stepped, expected):
    write_2024(tmp_path / "f.h5", ENDS, CELLS, np.ones((8, 1)), 0, time=0.5, stepped=stepped)
    assert load_asgard(tmp_path / "f.h5").time == expected


def test_single_precision(tmp_path, rng):
    coefficients = rng.standard_normal((8, 4)).astype(np.float32)
    write_090(tmp_path / "f.h5", ENDS, CELLS, coefficients, 1, dtype=np.float32)
    write_090(tmp_path / "g.h5", ENDS, CELLS, coefficients.astype(float), 1)
    single, double = (load_asgard(tmp_path / name) for name in ("f.h5", "g.h5"))
    assert np.array_equal(single.coefficients, double.coefficients)


def test_fields_have_their_own_grid_and_axes(tmp_path, rng):
    data = rng.standard_normal((2, 2)), rng.standard_normal((3, 4)), rng.standard_normal((1, 2))
    grids = [[1], [0]], [[0, 0], [2, 0], [0, 5]], [[0]]
    names = "__moment_4xx", "__moment_12x", "__moment_0xx"
    fields = list(zip(names, grids, data, strict=True))
    write_090(tmp_path / "f.h5", ENDS, CELLS, np.ones((8, 4)), 1, fields=fields)
    state = load_asgard(tmp_path / "f.h5")
    assert sorted(state.moments) == [(0,), (4,)]
    assert [field.name for field in state.fields] == ["__moment_12x"]  # two powers, one velocity
    points = np.column_stack([rng.uniform(*end, 50) for end in ENDS])
    expected = asgard_values(points, ENDS, grids[1], data[1], 1)
    assert np.allclose(state.fields[0].evaluate(points), expected, rtol=0, atol=1e-12)
    expected = asgard_values(points[:, :1], ENDS[:1], grids[0], data[0], 1)
    found = state.moments[(4,)].evaluate(points[:, :1])
    assert np.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_field_without_its_number_of_dimensions_has_all(tmp_path):
    path = shutil.copy(KINETIC, tmp_path)
    with h5py.File(path, "r+") as file:
        del file["aux_field_0_dims"]
    expected, found = load_asgard(KINETIC).fields[0], load_asgard(path).fields[0]
    assert np.array_equal(found.coefficients, expected.coefficients)


@pytest.mark.parametrize("name", ["x [m]", "t", "x2", ""])
def test_names_that_cannot_name_axes_are_replaced(tmp_path, name):
    path = tmp_path / "f.h5"
    write_090(path, ENDS, CELLS, np.ones((8, 1)), 0)
    with h5py.File(path, "r+") as file:
        del file["dim0_name"]
        file["dim0_name"] = name
    assert [axis.name for axis in load_asgard(path).axes] == ["x1", "x2"]


def replaced(name, value):
    def change(file):
        if name in file:
            del file[name]
        if value is not None:
            file[name] = value

    return change


def with_value(name, index, value):
    def change(file):
        data = file[name][...]
        data[index] = value
        replaced(name, data)(file)

    return change


LIES_090 = [
    (replaced("asgard file version", np.int32(2)), "'asgard file version' is 2; expected 1"),
    (replaced("asgard file version", 1.0), "'asgard file version' has type float64"),
    (replaced("title", None), "dataset 'title' is missing"),
    (replaced("title", 3), "dataset 'title' is no text"),
    (replaced("title", b"\xff"), "dataset 'title' is not UTF-8"),
    (replaced("degree", np.int32(3)), "'state' has|dataset 'state': has 864 values; expected 1536"),
    (replaced("degree", np.int32(-1)), "'degree' is -1; expected 0"),
    (replaced("degree", np.int32(10**6)), "'degree' is 1000000; expected 0"),
    (replaced("num_dims", np.int32(0)), "'num_dims' is 0; expected 1 … 6"),
    (replaced("num_dims", np.int32(3)), "'domain_range' has shape"),
    (replaced("num_dims", np.ones(2, "i4")), "'num_dims' has shape"),
    (with_value("domain_range", 1, -1.0), "dataset 'domain_range': axis 'x1'"),
    (with_value("domain_range", 1, np.nan), "'domain_range' holds nan"),
    (replaced("domain_range", "x"), "'domain_range' has type text"),
    (with_value("grid_indexes", 4, -1), "'grid_indexes': cell 2 has index -1 in dimension 0"),
    (with_value("grid_indexes", 4, 2**30), "'grid_indexes': cell 2 has index 1073741824"),
    (with_value("grid_indexes", 3, 0), "'grid_indexes': a cell occurs twice"),
    (replaced("grid_indexes", np.ones(3, "i4")), "'grid_indexes' has 3 values; expected a mult"),
    (replaced("grid_indexes", np.ones(0, "i4")), "'grid_indexes': the grid has no cells"),
    (replaced("grid_indexes", np.ones(192)), "'grid_indexes' has type float64; expected int64"),
    (replaced("grid_indexes", np.ones(192, "i2")), "'grid_indexes' has another type"),
    (replaced("state", np.ones((96, 9))), "'state' has shape"),
    (replaced("state", np.ones(863)), "'state': has 863 values; expected 864"),
    (with_value("state", 7, np.inf), "'state' holds inf"),
    (replaced("state", h5py.SoftLink("/dtime_dt")), "'state' is a soft link"),
    (replaced("state", h5py.ExternalLink("/etc/passwd", "/")), "'state' is an external link"),
    (replaced("dtime_time", None), "dataset 'dtime_time' is missing"),
    (replaced("num_aux_fields", np.int32(1)), "dataset 'aux_field_0_name' is missing"),
    (replaced("num_aux_fields", np.int32(2**31 - 1)), "'num_aux_fields' is 2147483647"),
    (replaced("num_vel", np.int32(7)), "'num_vel' is 7; expected 0 … 2"),
]


@pytest.mark.parametrize(("change", "text"), LIES_090)
def test_a_file_that_lies_is_refused(tmp_path, change, text, trusted):
    path = tmp_path / "file.h5"
    shutil.copy(ADAPTIVE, path)
    with h5py.File(path, "r+") as file:
        change(file)
    refused(path, text, trusted)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (replaced("degree", np.int32(0)), "'degree' is 0; expected 1"),
        (replaced("soln", None), "dataset 'soln' is missing"),
        (replaced("timings", None), "dataset 'timings' is missing"),
        (replaced("timings", 1.0), "'timings' is a dataset; expected a group"),
        (replaced("dim1_max", None), "dataset 'dim1_max' is missing"),
        (with_value("elements", 0, 31), "'elements': element 0 has level 31; expected 0 … 30"),
        (with_value("elements", 0, -1), "'elements': element 0 has level -1"),
        (with_value("elements", 2, 8), "'elements': element 0 has position 8 on level 4"),
        (with_value("elements", 3, 1), "element 0 has position 1 on level 0; expected 0 … 0"),
        (with_value("elements", 2, 1), "'elements': a cell occurs twice"),
        (replaced("elements", np.zeros(6, "i4")), "'elements' has 6 values; expected a multiple"),
        (replaced("elements", None), "neither a dataset 'asgard file version' nor"),
    ],
)
def test_a_file_of_2024_that_lies_is_refused(tmp_path, change, text):
    path = tmp_path / "file.h5"
    shutil.copy(DIFFUSION, path)
    with h5py.File(path, "r+") as file:
        change(file)
    refused(path, text, trusted=True)


def test_a_moment_that_occurs_twice_is_refused(tmp_path):
    path = tmp_path / "file.h5"
    shutil.copy(KINETIC, path)
    with h5py.File(path, "r+") as file:
        replaced("aux_field_3_name", "__moment_0xx")(file)
    refused(path, "'aux_field_3_name' repeats '__moment_0xx'", trusted=True)


def refused(path, text, trusted=False):
    with pytest.raises(ProblemFileError, match=text) as caught:
        load_asgard(path, trusted=trusted)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 47, 48, 100, 0.3, 0.9, -1])
@pytest.mark.parametrize("sample", [ADAPTIVE, DIFFUSION], ids=lambda path: path.stem)
def test_a_truncated_file_is_refused(tmp_path, sample, keep, trusted):
    image = sample.read_bytes()
    path = tmp_path / "file.h5"
    path.write_bytes(image[: int(keep * len(image)) if isinstance(keep, float) else keep])
    refused(path, "truncated|empty|not an HDF5 file", trusted)


def test_what_is_no_result_file_is_refused(tmp_path, trusted):
    path = tmp_path / "file.h5"
    path.write_text("hello")
    refused(path, "not an HDF5 file", trusted)
    with h5py.File(path, "w") as file:
        file["something"] = 1.0
    refused(path, "expected a result file of ASGarD", trusted)
    with pytest.raises(IsADirectoryError):
        load_asgard(tmp_path, trusted=trusted)
    with pytest.raises(FileNotFoundError):
        load_asgard(tmp_path / "nothing.h5", trusted=trusted)


def test_each_loader_names_the_right_one(tmp_path, trusted):
    path = tmp_path / "problem.h5"
    save_problem(path, make("continuity-1d", level=2, degree=1))
    refused(path, "load this file with batchkron.problems.load_problem", trusted)
    modern = tmp_path / "modern.h5"
    with h5py.File(ADAPTIVE) as old, h5py.File(modern, "w", libver=("v110", "v110")) as new:
        for name in old:
            old.copy(name, new)
    assert load_asgard(modern, trusted=trusted).grid.num_cells == 96
    for sample in (ADAPTIVE, DIFFUSION, modern):
        for load in (load_problem, load_result, identify):
            with pytest.raises(ProblemFileError, match=r"batchkron\.problems\.load_asgard"):
                load(sample, trusted=trusted)


def test_flipped_bytes_never_do_harm(tmp_path, rng):
    """The layout has few checksums: a flip may go unnoticed, but a state is always sound."""
    image = ADAPTIVE.read_bytes()
    path = tmp_path / "file.h5"
    refusals = 0
    for _ in range(100):
        flipped = bytearray(image)
        for place in rng.integers(0, len(image), rng.integers(1, 20)):
            flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            state = load_asgard(path)
        except ProblemFileError:
            refusals += 1
        else:
            assert isinstance(state, AsgardState)
            assert np.isfinite(state.coefficients).all()
    assert refusals > 50
