"""Factored plans of batch lists in problem files: saved, loaded without planning, and refused."""

import pickle

import numpy as np
import pytest
from crafted_files import changed, write_unchecked
from dense_oracle import batch_bound, dense_batch, random_array

import batchkron as bk
from batchkron import ProblemFileError
from batchkron.operators.factored_list import choice, program
from batchkron.problems import LinearProblem, load_problem, save_problem
from batchkron.problems.files.lists import encode_list


def shared_list(rng, dtype="float64", sizes=(3, 2), products=40, **options):
    """A list with identities, multiples of them and few weights, so that much is shared."""
    pools = [random_array(rng, (4, n, n), dtype) for n in sizes]
    for pool in pools:
        pool[1], pool[2] = np.eye(pool.shape[-1]), 3 * np.eye(pool.shape[-1])
    return bk.BatchedKron(
        pools,
        rng.integers(0, 4, (products, len(sizes))),
        *rng.integers(0, 4, (2, products)),
        weights=rng.integers(1, 3, products).astype(dtype),
        num_inputs=4,
        num_outputs=4,
        **options,
    )


@pytest.fixture
def no_planning(monkeypatch):
    """Makes a new factored plan an error from here on; returns the function that does so."""

    def forbid():
        for module, name in ((program, "graph_of"), (program, "words_of"), (choice, "factored")):
            monkeypatch.setattr(module, name, None)

    return forbid


def problem_of(rng, op):
    return LinearProblem(op, random_array(rng, op.shape[1], op.dtype))


@pytest.mark.parametrize("sizes", [(3,), (3, 2), (2, 1, 2), (2,) * 5], ids=str)
def test_a_plan_is_loaded_and_not_made_again(rng, dtype, sizes, tmp_path, no_planning):
    op = shared_list(rng, dtype, sizes).plan("factored")
    problem = problem_of(rng, op)
    save_problem(tmp_path / "list.h5", problem)
    no_planning()
    x = random_array(rng, op.shape[1], dtype)
    for trusted in (False, True):
        loaded = load_problem(tmp_path / "list.h5", trusted=trusted)
        assert loaded.operator.describe() == op.describe()
        np.testing.assert_array_equal(loaded.operator @ x, op @ x)
    save_problem(tmp_path / "again.h5", loaded)
    assert load_problem(tmp_path / "again.h5").content_hash == problem.content_hash
    spec = op._spec
    pools = [pool[0] for pool in spec.pools]
    lists = spec.factor_ids, spec.inputs, spec.outputs, spec.weights[0]
    matrix, magnitude = dense_batch(pools, *lists, 4, 4)
    bound = batch_bound(magnitude, x, pools, 80)
    assert (np.abs(loaded.operator @ x - matrix @ x) <= bound).all()


def test_the_problem_is_the_same_with_another_plan(rng, tmp_path):
    op = shared_list(rng)
    hashes = {
        problem_of(np.random.default_rng(1), op.plan(name)).content_hash
        for name in ("direct", "factored", "auto")
    }
    assert len(hashes) == 1
    save_problem(tmp_path / "list.h5", problem_of(rng, op))
    assert "plan:" not in load_problem(tmp_path / "list.h5").operator.describe()


def test_plans_after_updates(rng, tmp_path, no_planning):
    """Also where weights that differed are equal now, or a matrix is a multiple of the identity."""
    op = shared_list(rng)
    factored = op.plan("factored")
    pools = [pool[0].copy() for pool in op._spec.pools]
    pools[0][0] = 2 * np.eye(3)
    factored.update(pools=pools, weights=np.full(40, 0.5))
    save_problem(tmp_path / "list.h5", problem_of(rng, factored))
    no_planning()
    loaded = load_problem(tmp_path / "list.h5").operator
    x = rng.standard_normal(op.shape[1])
    np.testing.assert_array_equal(loaded @ x, factored @ x)
    weights = np.where(op._spec.weights[0] > 0, 0.25, 0)
    for one in (loaded, factored):
        one.update(weights=weights)
    np.testing.assert_array_equal(loaded @ x, factored @ x)


def test_plans_that_multiply_by_identities(rng, tmp_path, no_planning):
    op = shared_list(rng, skip_identities=False).plan("factored")
    save_problem(tmp_path / "list.h5", problem_of(rng, op))
    no_planning()
    loaded = load_problem(tmp_path / "list.h5").operator
    x = rng.standard_normal(op.shape[1])
    np.testing.assert_array_equal(loaded @ x, op @ x)
    texts = [one.describe().splitlines()[-1].partition(" (")[0] for one in (op, loaded)]
    assert texts[0] == texts[1]  # as many multiply-adds


def test_lists_without_products(rng, tmp_path):
    op = bk.BatchedKron(
        rng.standard_normal((2, 3, 3)), np.empty((0, 2), int), [], [], num_inputs=1, num_outputs=1
    )
    save_problem(tmp_path / "list.h5", problem_of(rng, op.plan("factored")))
    loaded = load_problem(tmp_path / "list.h5").operator
    np.testing.assert_array_equal(loaded @ np.ones(9), np.zeros(9))


def test_copies_have_the_plan_and_do_not_make_it_again(rng, no_planning):
    op = shared_list(rng).plan("factored")
    no_planning()
    copy = pickle.loads(pickle.dumps(op))
    x = rng.standard_normal(op.shape[1])
    np.testing.assert_array_equal(copy @ x, op @ x)
    assert copy.describe() == op.describe()
    copy.update(weights=2 * op._spec.weights[0])
    np.testing.assert_array_equal(copy @ x, 2 * (op @ x))


def small_plan():
    """A list of 3 products on 2 blocks: y0 = A B x0 + 2 A B x1, y1 = A C x0, and its document."""
    rng = np.random.default_rng(2)
    pools = [rng.standard_normal((1, 2, 2)), rng.standard_normal((2, 3, 3))]
    op = bk.BatchedKron(pools, [[0, 0], [0, 0], [0, 1]], [0, 1, 0], [0, 0, 1], weights=[1, 2, 1])
    document = encode_list(LinearProblem(op.plan("factored"), np.ones(12)).content)
    stored = {
        name: document.datasets[f"plan/{name}"]
        for name in ("groups", "partial", "results", "weights")
    }
    assert {name: table.shape for name, table in stored.items()} == {
        "groups": (1, 3), "partial": (2, 4), "results": (3, 5), "weights": (3,)
    }  # fmt: skip
    assert stored["weights"].tolist() == [0, 1, 0]
    return document, stored


def cell(name, row, column, value):
    """Change one number of a table."""

    def change(stored):
        table = stored[name].copy()
        table[row, column] = value
        return {name: table}

    return change


WRONG = [
    (cell("partial", 0, 0, 4), r"'plan/partial' holds 4 at \[0, 0\]; expected 2 … 3"),
    (cell("partial", 0, 0, 1), r"'plan/partial' holds 1 at \[0, 0\]"),
    (cell("partial", 1, 1, 4), r"'plan/partial' holds 4 at \[1, 1\]; expected 0 … 3"),
    (cell("partial", 1, 1, 2), "a row of partial leads from 2 to 3; expected a source with one"),
    (cell("partial", 0, 0, 3), "partial product 2 is the target of no edge"),
    (cell("partial", 0, 2, -1), r"'plan/partial' holds -1 at \[0, 2\]; expected 0 … 1"),
    (cell("partial", 0, 3, 1), r"'plan/partial' holds 1 at \[0, 3\]; expected 0 … 0"),
    (cell("results", 0, 0, 2), r"'plan/results' holds 2 at \[0, 0\]; expected 0 … 1"),
    (cell("results", 0, 1, 4), r"'plan/results' holds 4 at \[0, 1\]; expected 0 … 3"),
    (cell("results", 0, 2, 2), r"'plan/results' holds 2 at \[0, 2\]; expected -1 … 1"),
    (cell("results", 0, 2, -1), "'plan': the edges do not add up to the list's products of output"),
    (cell("results", 1, 2, -1), r"'plan/results' holds 1 at \[1, 3\]; expected 0 … 0"),
    (cell("results", 0, 3, -1), r"'plan/results' holds -1 at \[0, 3\]"),
    (cell("results", 0, 4, 2), r"'plan/results' holds 2 at \[0, 4\]; expected 0 … 1"),
    (cell("results", 0, 4, 1), "do not add up to the list's products of output block 0"),
    (lambda stored: {"results": stored["results"][:2]}, r"'plan/groups' holds 3 at \[0, 1\]"),
    (
        lambda stored: {"groups": np.array([[2, 2, 2]])},
        r"has 1 groups of \[2, 2\] rows and 1 layers; expected one group or more of 2 rows",
    ),
    (
        lambda stored: {"results": stored["results"][:2], "groups": np.array([[2, 2, 2]])},
        "do not add up to the list's products",
    ),
    (
        lambda stored: {
            "results": np.repeat(stored["results"], 2, 0),
            "groups": np.array([[2, 6, 2]]),
        },
        "do not add up to the list's products of output block 0",
    ),
    (lambda stored: {"results": stored["results"][:, :4]}, r"'plan/results' has shape \(3, 4\)"),
    (lambda stored: {"results": None}, "'plan/results' is missing"),
    (lambda stored: {"groups": None, "partial": None, "results": None}, "'plan/groups' is missing"),
    (lambda stored: {"groups": np.array([[2, 3, 1, 1]])}, "2 layers; expected one group or more"),
    (
        lambda stored: {"groups": np.array([[2, 3, 3]])},
        "more partial products than rows .* in row 0",
    ),
    (lambda stored: {"groups": np.array([[2, 3, -1]])}, r"'plan/groups' holds -1 at \[0, 2\]"),
    (lambda stored: {"groups": np.array([[2, 3, 1]])}, r"'plan/partial' holds 3 at \[1, 0\]"),
    (
        lambda stored: {"groups": np.array([[1, 3, 2]])},
        r"groups of \[1, 3\] rows and 1 layers; exp",
    ),
    (lambda stored: {"groups": np.array([[2], [3]])}, "and -1 layers; expected one group or more"),
    (lambda stored: {"groups": np.zeros((0, 3), int)}, "has 0 groups"),
    (
        lambda stored: {"groups": np.array([[1, 3, 1], [1, 0, 1]])},
        r"'plan/partial' holds 3 at \[1, 0\]; expected 2 … 2",
    ),
    (
        lambda stored: {"groups": np.concatenate([stored["groups"], np.zeros((300_000, 3), int)])},
        "'plan/groups' has 300001 rows, too many for so few partial products",
    ),
    (lambda stored: {"weights": None}, r"'plan/results' holds 1 at \[\d, 4\]; expected 0 … 0"),
    (lambda stored: {"weights": np.array([0, 0, 1])}, r"weights holds 0 at \[0\], and another"),
    (lambda stored: {"weights": np.array([0, 3, 0])}, r"'plan/weights' holds 3 at \[1\]"),
    (lambda stored: {"weights": np.array([0, 1])}, "'plan/weights' has shape"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_plans_of_other_lists_are_refused(change, text, tmp_path):
    document, stored = small_plan()
    path = tmp_path / "list.h5"
    new = {f"plan/{name}": table for name, table in change(stored).items()}
    write_unchecked(path, changed(document, datasets=new))
    with pytest.raises(ProblemFileError, match=text) as error:
        load_problem(path)
    assert str(error.value).startswith(f"{path}: ")


def test_plans_of_factors_that_are_not_square_are_refused(rng, tmp_path):
    document, _ = small_plan()
    pool = {"list/pool_1": rng.standard_normal((2, 3, 6)), "initial": np.ones(24), "blocks": None}
    path = tmp_path / "list.h5"
    write_unchecked(path, changed(document, datasets=pool))
    with pytest.raises(ProblemFileError, match="group 'plan': factored plans take square factors"):
        load_problem(path)
    plan = {path: None for path in document.datasets if path.startswith("plan/")}
    write_unchecked(path, changed(document, datasets={**pool, **plan}))
    assert load_problem(path).operator.num_outputs == 4


def test_groups_of_products_are_saved(rng, tmp_path, monkeypatch, no_planning):
    """They take the same memory one after another; one group that needs more is refused."""
    op = shared_list(rng, sizes=(2, 3, 2))
    problem = problem_of(rng, op.plan("factored"))
    save_problem(tmp_path / "one.h5", problem)
    monkeypatch.setattr(choice, "_MAX_SHARE", 0)
    monkeypatch.setattr(choice, "_MAX_BYTES", 5 * 12 * 8)
    grouped = shared_list(np.random.default_rng(0), sizes=(2, 3, 2)).plan("factored")
    assert len(grouped._choice.listing.graphs) > 2
    save_problem(tmp_path / "groups.h5", problem_of(rng, grouped))
    no_planning()
    loaded = load_problem(tmp_path / "groups.h5").operator
    x = rng.standard_normal(op.shape[1])
    np.testing.assert_array_equal(loaded @ x, grouped @ x)
    assert loaded.describe() == grouped.describe()
    with pytest.raises(ProblemFileError, match="partial products; expected at most 5, so that"):
        load_problem(tmp_path / "one.h5")


def test_edges_in_another_order_are_the_same_plan(rng, tmp_path):
    op = shared_list(rng, sizes=(2, 3, 2)).plan("factored")
    document = encode_list(problem_of(rng, op).content)
    turned = {
        f"plan/{name}": rng.permutation(document.datasets[f"plan/{name}"])
        for name in ("partial", "results")
    }
    write_unchecked(tmp_path / "list.h5", changed(document, datasets=turned))
    x = rng.standard_normal(op.shape[1])
    loaded = load_problem(tmp_path / "list.h5").operator
    np.testing.assert_allclose(loaded @ x, op @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("modes", [17, 18, 20])
def test_the_plan_of_one_product_with_many_modes_is_read_again(rng, tmp_path, monkeypatch, modes):
    """However few partial products a group may have, those of one product are among them."""
    monkeypatch.setattr(choice, "_MAX_BYTES", 1)
    pool = rng.standard_normal((1, 2, 2))
    op = bk.BatchedKron(pool, [[0] * modes], [0], [0]).plan("factored")
    u = rng.standard_normal((1, op.shape[0]))
    save_problem(tmp_path / "list.h5", LinearProblem(op, u.ravel()))
    loaded = load_problem(tmp_path / "list.h5").operator
    assert loaded.describe() == op.describe()
    assert loaded.apply(u).tobytes() == op.apply(u).tobytes()
