"""What tuning tries for Kronecker-sparse matrices: kernels, cuBLAS, vectors in another order."""

from concurrent.futures import Future
from dataclasses import replace

import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.kron_sparse.search_space import (
    SparseSpace,
    choice_of,
    read_choice,
    way_of,
)
from batchkron.backends.cuda.kron_sparse.transposed import seconds_of
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.tuning.search import Search
from batchkron.backends.cuda.tuning.tuning import Tuning

DEVICE = replace(DEVICES["90"], has_matrix_library=True)
TURNED = SparseShape(1, 192, 48, 2, 25088, 1, "float16")  # with d > 1 and vectors first
SHAPES = [
    TURNED,
    SparseShape(1, 512, 512, 4, 1, 25088, "float16"),
    SparseShape(4, 16, 16, 3, 512, 1, "float32", 3),
    SparseShape(2, 3, 5, 3, 1, 7, "float64"),
    SparseShape(2, 3, 5, 3, 40, 7, "complex64"),
]


def candidates(shape):
    space = SparseSpace(shape, DEVICE)
    (step,) = space.steps()
    return space, list(step(space.rule))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_candidates_are_all_ways_that_may_be_the_fastest(shape):
    space, found = candidates(shape)
    assert found.count(space.rule) == 1
    assert len(set(found)) == len(found) <= 140
    rule = fastest_way(shape, DEVICE)
    assert choice_of(rule) == space.rule
    assert seconds_of(space.ways[found[0]]) == pytest.approx(seconds_of(rule))
    for choice in found:
        assert space.kernels(choice) is not None
        assert read_choice(list(choice)) == choice_of(way_of(choice, shape, DEVICE)) == choice


def test_every_kind_of_way_is_tried():
    kinds = {choice[:1] if choice[0] == "tiles" else choice[:2] for choice in candidates(TURNED)[1]}
    assert {("tiles",), ("library", "expanded"), ("transposed", "library")} <= kinds
    assert ("transposed", "tiles") in kinds


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], "tiles", [1], ["tiles"], ["tiles", 1], ["tiles", 2, 2, 96, 128, 2, 4, 7]),
        *(["tiles", 2, 2, 1 << 40, 128, 2, 4, 1], ["library"], ["library", "whole"], ["other", 1]),
        *(["transposed"], ["transposed", "library", "expanded"], ["tiles", 2.0]),
        *(["transposed", "transposed", "library", "blocks"], ["library", ["expanded"]]),
    ],
)
def test_what_the_store_may_not_say_gives_no_way(data):
    choice = read_choice(data)
    assert choice is None or way_of(choice, TURNED, DEVICE) is None


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("tiles", ("tiles", 2, 2, 96, 128, 2, 4, True)),
        ("library", ("library", "expanded")),
        ("transposed", ("transposed", "library", "blocks")),
    ],
)
def test_ways_that_are_switched_off_are_not_taken(name, choice):
    assert way_of(choice, TURNED, DEVICE) is not None
    with without(f"kron_sparse.{name}"):
        assert way_of(choice, TURNED, DEVICE) is None


class Compiler:
    """Compiles nothing, at once."""

    processes = 2

    def submit(self, program):
        answer = Future()
        answer.set_result(CompiledKernel("none", b""))
        return answer


@pytest.mark.parametrize(
    "best", [("library", "blocks"), ("library", "expanded"), ("tiles", 1, 1, 128, 128, 2, 2, True)]
)
def test_the_fastest_is_found_also_where_it_has_no_kernels(best):
    """The rule, and two of the candidates, are cuBLAS's."""
    space = SparseSpace(SHAPES[1], DEVICE)
    assert space.rule[0] == "library"

    def measure(choice, compiled, limit):
        assert len(compiled) == len(space.kernels(choice))
        return 10.0 if choice == best else 20.0

    search = Search(space, Compiler(), measure, DEVICE, Tuning(seconds=60), "products")
    outcome = search.run()
    assert search.best == best
    assert outcome.failed == 0
    assert outcome.gain == (1 if best == space.rule else 2)
