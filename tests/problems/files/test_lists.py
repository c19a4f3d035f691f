"""Batch lists in problem files: written by batchkron and by others, read, and refused."""

import h5py
import numpy as np
import pytest
from crafted_files import changed, edit, write_unchecked
from random_lists import random_list, random_problem

import batchkron as bk
from batchkron import ProblemFileError
from batchkron.problems import LinearProblem, load_problem, save_problem, time
from batchkron.problems.files.lists import encode_list
from batchkron.solvers import evolve
from batchkron.storage import load_checkpoint


def bits(problem):
    """All arrays of a problem."""
    spec = problem.operator._spec
    yield from (*spec.pools, spec.factor_ids, spec.inputs, spec.outputs, spec.weights)
    yield from (problem.initial, *problem.quantities("mass", "Ä").values())
    for given in (problem._source, problem._exact):
        yield from (vector for _, vector in given.parts)
    yield from (problem.levels, problem.cells)


def test_round_trip_bit_for_bit(rng, dtype, tmp_path):
    problem = random_problem(rng, dtype)
    save_problem(tmp_path / "list.h5", problem)
    for trusted in (False, True):
        loaded = load_problem(tmp_path / "list.h5", trusted=trusted)
        assert isinstance(loaded, LinearProblem)
        for a, b in zip(bits(problem), bits(loaded), strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for name in ("name", "t0", "blocks", "stepper", "content_hash"):
            assert getattr(loaded, name) == getattr(problem, name)
        functions = [[f for f, _ in p.time_parts().sources] for p in (problem, loaded)]
        assert functions[0] == functions[1]
        assert evolve(loaded, until=0.5).u.tobytes() == evolve(problem, until=0.5).u.tobytes()
    save_problem(tmp_path / "again.h5", loaded)
    assert load_problem(tmp_path / "again.h5").content_hash == problem.content_hash


def test_what_may_be_left_out_is_left_out(rng, tmp_path):
    op = bk.BatchedKron(rng.standard_normal((2, 3, 3)), [[0], [1]], [0, 1], [1, 0])
    problem = LinearProblem(op, rng.standard_normal(6))
    save_problem(tmp_path / "list.h5", problem)
    with h5py.File(tmp_path / "list.h5") as file:
        found = []
        file.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    assert sorted(found) == [
        "blocks", "initial", "list/factor_ids", "list/inputs", "list/outputs", "list/pool_0",
        "name", "provenance/file",
    ]  # fmt: skip
    assert load_problem(tmp_path / "list.h5").content_hash == problem.content_hash


def test_lists_whose_products_are_not_square(rng, tmp_path):
    op = random_list(rng, shapes=((2, 3), (6, 2)), blocks=6)
    assert (op.num_inputs, op.num_outputs) == (6, 3)
    problem = LinearProblem(op, rng.standard_normal(36))
    save_problem(tmp_path / "list.h5", problem)
    loaded = load_problem(tmp_path / "list.h5")
    np.testing.assert_array_equal(loaded.operator.to_dense(), op.to_dense())


def test_checkpoints_of_a_file_resume_from_it(rng, tmp_path):
    problem = random_problem(rng)
    save_problem(tmp_path / "list.h5", problem)
    whole = evolve(problem, until=0.5)
    run = {"until": 0.5, "callback": lambda state: state.step == 12}
    evolve(problem, **run, checkpoint=tmp_path / "c.h5")
    assert load_checkpoint(tmp_path / "c.h5").problem_hash == problem.content_hash
    resumed = evolve(load_problem(tmp_path / "list.h5"), until=0.5, resume=tmp_path / "c.h5")
    assert resumed.u.tobytes() == whole.u.tobytes()


def test_problems_that_files_do_not_hold(rng, tmp_path):
    op, u0 = random_list(rng), rng.standard_normal(24)
    for text, problem in [
        ("the operator is a KroneckerSum", LinearProblem(bk.KroneckerSum([np.eye(2)]), [1, 2])),
        ("source has a function that is Python", LinearProblem(op, u0, lambda t: u0)),
        ("source has a function that is Python", LinearProblem(op, u0, (np.cos, u0))),
        ("exact has a function that is Python", LinearProblem(op, u0, exact=lambda t: u0)),
        ("or a LinearProblem, such as", op),
    ]:
        with pytest.raises(TypeError, match=text):
            save_problem(tmp_path / "list.h5", problem)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def written(tmp_path):
    """Writes a file by h5py alone, as another program may; returns its path."""

    def write(attributes, datasets, name="foreign.h5", libver="v110", **storage):
        path = tmp_path / name
        with h5py.File(path, "w", libver=(libver, libver)) as file:
            for key, value in attributes.items():
                file.attrs[key] = np.bytes_(value) if isinstance(value, str) else value
            for key, value in datasets.items():
                options = {"chunks": value.shape, "fletcher32": True, **storage}
                file.create_dataset(key, data=value, **(options if value.size else {}))
        return path

    return write


def foreign(rng):
    """Attributes and datasets of a small list, without any that may be missing."""
    attributes = {"format": "batchkron-problem", "format_version": np.int64(3)}
    return attributes, {
        "list/factor_ids": np.array([[0, 1], [1, 0], [1, 1]]),
        "list/inputs": np.array([0, 1, 2]),
        "list/outputs": np.array([2, 1, 2]),
        "list/pool_0": rng.standard_normal((2, 3, 3)),
        "list/pool_1": rng.standard_normal((2, 2, 2)),
        "initial": rng.standard_normal(18),
    }


def dense(datasets):
    """The matrix of a foreign list."""
    matrix = np.zeros((18, 18))
    lists = (datasets[f"list/{name}"] for name in ("factor_ids", "inputs", "outputs"))
    for (i, j), source, target in zip(*lists, strict=True):
        product = np.kron(datasets["list/pool_0"][i], datasets["list/pool_1"][j])
        matrix[6 * target : 6 * target + 6, 6 * source : 6 * source + 6] += product
    return matrix


def test_files_of_other_programs(rng, written):
    attributes, datasets = foreign(rng)
    loaded = load_problem(written(attributes, datasets))
    assert (loaded.name, loaded.t0, loaded.blocks) == ("list", 0.0, (3, 3, 2))
    assert np.abs(loaded.operator.to_dense() - dense(datasets)).max() < 1e-14
    np.testing.assert_array_equal(loaded.initial, datasets["initial"])
    assert (loaded.stepper, loaded.time_parts().sources) == (None, ())


def test_column_major_matrices(rng, written):
    attributes, datasets = foreign(rng)
    turned = dict(datasets)
    for k in range(2):
        turned[f"list/pool_{k}"] = datasets[f"list/pool_{k}"].swapaxes(1, 2).copy()
    path = written({**attributes, "matrix_order": "column-major"}, turned)
    same = load_problem(written(attributes, datasets, "row-major.h5"))
    assert load_problem(path).content_hash == same.content_hash


def test_single_precision_and_complex_numbers(rng, written):
    attributes, datasets = foreign(rng)
    for k in range(2):
        pairs = rng.standard_normal((2, 3 - k, 3 - k, 2)).astype("float32")
        datasets[f"list/pool_{k}"] = pairs
    loaded = load_problem(written(attributes, datasets))
    assert (loaded.operator.dtype, loaded.initial.dtype) == (np.complex64, np.complex128)
    first = datasets["list/pool_0"]
    np.testing.assert_array_equal(
        loaded.operator._spec.pools[0][0], first[..., 0] + np.complex64(1j) * first[..., 1]
    )


IDS, POOL = "list/factor_ids", "list/pool_1"


WRONG = [
    (
        {IDS: [[0, 1], [2, 0], [9, 9]]},
        rf"'{IDS}' holds 2 at \[1, 0\]; expected 0 … 1, for 'list/pool_0' has 2",
    ),
    ({IDS: [[0, -1], [1, 0], [1, 1]]}, rf"'{IDS}' holds -1 at \[0, 1\]"),
    ({"list/inputs": [0, 1, 3]}, r"'list/inputs' holds 3 at \[2\]; expected 0 … 2"),
    ({"list/outputs": [-1, 1, 3]}, r"'list/outputs' holds -1 at \[0\]"),
    ({"list/outputs": [0, 1]}, r"'list/outputs' has shape \(2,\)"),
    ({POOL: np.ones((2, 4))}, rf"'{POOL}' has 2 dimensions; expected 3"),
    ({POOL: None}, rf"'{POOL}' is missing"),
    ({IDS: None}, rf"'{IDS}' is missing or has another shape"),
    ({POOL: np.ones((2, 0, 2))}, r"matrices of shape \(0, 2\)"),
    ({"initial": np.ones(17)}, "'initial' has 17 unknowns; expected a multiple of 6"),
    ({"initial": np.full(18, np.nan)}, "'initial' holds nan at"),
    ({"initial": None}, "'initial' is missing"),
    ({"list/pool_2": np.ones((1, 1, 1))}, "'list/pool_2' is not one of this format"),
    ({"list/weights": np.ones(4)}, "'list/weights' has shape"),
    ({"blocks": [3, 5]}, r"'blocks' is \(3, 5\)"),
    ({"list/cells": [[0], [1]]}, "'list/cells' has 2 rows; expected 3"),
    ({"list/cells": [[0], [1], [2**30]]}, r"'list/cells' holds 1073741824 at \[2, 0\]"),
    ({"list/levels": [99]}, "'list/levels' holds 99"),
    ({"sources/vectors": np.ones((1, 18))}, "'sources/time' is missing"),
    ({"grid/cells": [[0]]}, "'grid/cells' is not one of this format"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_the_first_wrong_entry_is_named(rng, written, change, text):
    attributes, datasets = foreign(rng)
    datasets = {**datasets, **{k: None if v is None else np.array(v) for k, v in change.items()}}
    path = written(attributes, {key: value for key, value in datasets.items() if value is not None})
    with pytest.raises(ProblemFileError, match=text) as error:
        load_problem(path)
    assert str(error.value).startswith(f"{path}: ")


def test_versions_have_rules(rng, tmp_path, written):
    attributes, datasets = foreign(rng)
    for version, text in [
        (5, "newer than version 4 that this batchkron reads; update batchkron"),
        (4, "attribute 'content_hash' is None"),
        (2, "attribute 'content_hash' is None"),
        (1, "attribute 'content_hash' is None"),
    ]:
        path = written({**attributes, "format_version": np.int64(version)}, datasets)
        with pytest.raises(ProblemFileError, match=text):
            load_problem(path)
    document = encode_list(random_problem(rng).content)
    older = changed(document, attributes={"format_version": 2})
    write_unchecked(tmp_path / "older.h5", older)
    with pytest.raises(ProblemFileError, match="'basis_id' is missing"):
        load_problem(tmp_path / "older.h5")


def test_a_hash_that_is_there_must_be_right(rng, tmp_path):
    save_problem(tmp_path / "list.h5", random_problem(rng))

    def change(file):
        file["initial"][3] = 7.0

    edit(tmp_path / "list.h5", change)
    with pytest.raises(ProblemFileError, match="was changed after it was written"):
        load_problem(tmp_path / "list.h5")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("contiguous without checksums", {"chunks": None, "fletcher32": False}),
        ("chunked without checksums", {"fletcher32": False}),
    ],
)
def test_storage_without_checksums_is_refused(rng, written, text, options):
    with pytest.raises(ProblemFileError, match=text):
        load_problem(written(*foreign(rng), **options))


def test_many_modes_and_sources(rng, tmp_path):
    op = bk.BatchedKron(
        rng.standard_normal((2, 1, 1)), rng.integers(0, 2, (3, 31)), *[[0, 1, 1]] * 2
    )
    pairs = [(time.exp(-k / 7), rng.standard_normal(2)) for k in range(5)]
    problem = LinearProblem(op, rng.standard_normal(2), pairs)
    save_problem(tmp_path / "list.h5", problem)
    assert load_problem(tmp_path / "list.h5").content_hash == problem.content_hash
