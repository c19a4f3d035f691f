"""What families of kernels are worth: who is found to be used, and how gains are summed up."""

import math
from dataclasses import replace

import pytest
import source_benchmarks
from nvrtc import DEVICES
from plans import plan_of, product

from batchkron.backends.cuda.kernel_family import enabled, without
from batchkron.backends.cuda.kron.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.families import FAMILIES as KRON_SPARSE
from batchkron.backends.cuda.kron_sparse.transposed import kernels_of, programs_of

SIZES = [(8, 8)] * 3, 1000, 1, "f4"


@pytest.fixture(scope="module")
def ablate():
    return source_benchmarks.module("gpu.ablate")


def planned(names):
    """Plan a product, as an operator does; remember the families."""
    plan = plan_of(*SIZES, DEVICES["90"])
    names.append({f"kron.{kernel.family.name}" for kernel in plan})


def test_families_are_those_whose_kernels_are_asked_for(ablate):
    names, methods = [], [type(family).kernel for family in FAMILIES]
    with without(), ablate.used_families() as used:
        assert not used
        planned(names)
    assert used == names[0] != set()
    assert [type(family).kernel for family in FAMILIES] == methods
    planned(names)
    assert used == names[0]


def test_what_is_needed_without_a_family_is_compiled_too(ablate):
    names = []

    def job():
        planned(names)

    ablate.compile_with_and_without(job, ["kron.none of these"])
    assert len(names) == 1
    ablate.compile_with_and_without(job, ["kron.none of these", *ablate.FAMILIES])
    with_all, *others = names[1:]
    assert with_all == names[0]
    assert len(others) == len(with_all)
    assert all(with_all - one for one in others)


def test_a_job_that_nobody_else_does_ends_the_attempt_only(ablate):
    calls = []

    def job():
        calls.append(enabled(FAMILIES))
        if len(calls[-1]) < len(FAMILIES):
            raise LookupError("there is none")
        FAMILIES[0].fastest(product(*SIZES), DEVICES["90"])

    ablate.compile_with_and_without(job, ablate.FAMILIES)
    assert [len(one) for one in calls] == [len(FAMILIES), len(FAMILIES) - 1]


def test_gains_are_geometric_means_over_the_own_cells(ablate):
    def gain(family, before, after):
        where = {"part": "kron", "case": f"cell {before}", "dtype": "float32"}
        factor = None if after is None else after / before
        return {"family": family, **where, "microseconds": before, "factor": factor}

    found = [gain("kron.a", 2.0, 4.0), gain("kron.a", 1.0, 8.0), gain("kron.b", 10.0, 10.5)]
    found.append(gain("kron.c", 1.0, None))
    assert ablate.mean_gain(found[:2]) == pytest.approx(4)
    assert ablate.mean_gain(found[3:]) is None
    own = ablate.by_family(found)
    assert {name: len(one) for name, one in own.items()} == {"kron.a": 2, "kron.b": 1, "kron.c": 1}
    assert list(ablate.lines(found, ["kron.a", "kron.b", "kron.c", "kron.d"])) == [
        "family kron.a, cells 2, only one 0, mean 4, is low False, from 2, to 8, "
        "in kron cell 1.0 float32",
        "family kron.b, cells 1, only one 0, mean 1.05, is low True, from 1.05, to 1.05, "
        "in kron cell 10.0 float32",
        "family kron.c, cells 1, only one 1",
        "family kron.d, cells 0, only one 0",
    ]
    assert math.isclose(ablate.mean_gain(found[2:3]), 1.05)


def test_a_name_of_no_family_is_refused_with_those_that_there_are(ablate):
    command = source_benchmarks.module("gpu.__main__")
    with pytest.raises(SystemExit) as refused:
        command.main(["--ablate", "kron.shovels"])
    assert all(name in str(refused.value) for name in ("kron.shovels", *ablate.FAMILIES))


def test_families_joined_by_plus_are_switched_off_together(ablate):
    names = []

    def job():
        planned(names)

    with_one = "kron.registers+kron.none of these"
    assert ablate.used_of([with_one, "kron.fibres"], {"kron.registers"}) == [with_one]
    assert ablate.used_of([with_one], {"kron.fibres"}) == []
    planned(names)
    own = "+".join(sorted(names.pop()))
    ablate.compile_with_and_without(job, [own])
    with_all, without_own = names
    assert with_all == set(own.split("+"))
    assert not with_all & without_own


def test_names_are_asked_for_by_patterns(ablate):
    assert ablate.asked_families(["all"]) == list(ablate.NAMES)
    sparse = ablate.asked_families(["kron_sparse.*", "kron_sparse.tiles"])
    assert sparse == [name for name in ablate.NAMES if name.startswith("kron_sparse.")]
    assert {"kron_sparse.tiles", "kron_sparse.transposed"} < set(sparse)
    assert ablate.asked_families(["kron.a+kron.b"]) == ["kron.a+kron.b"]


def test_cells_are_those_that_may_have_the_families(ablate):
    listed = [ablate.Choice("kron", "1: 2^2", "float32", None)]
    sparse = ablate.sparse_choices(None)
    assert ablate.cells_without_choice(listed, ["kron_sparse.tiles"], None) == sparse
    others = ablate.cells_without_choice(listed, ["kron.panels"], None)
    assert others == listed + ablate.systems()
    both = ablate.cells_without_choice(listed, ablate.NAMES, "float64")
    assert {one.dtype for one in both[1:]} == {"float64"}
    assert {one.part for one in both} == {"kron", "systems", "kronecker-sparse"}


def test_cells_of_kronecker_sparse_matrices_have_everything_that_is_switched_off(ablate):
    """Each family and way is in some cell's plan, and without it the plan is another one."""
    device = DEVICES["90"]
    choices = ablate.sparse_choices(None)
    assert len({(one.name, one.dtype) for one in choices}) == len(choices)
    changed = set()
    for choice in choices:
        way = fastest_way(ablate.shape_in(choice), device)
        planned = programs_of(way)
        used = {f"kron_sparse.{kernel.family.name}" for kernel in kernels_of(way)}
        used.discard("kron_sparse.transposition")
        assert used <= {f"kron_sparse.{family.name}" for family in KRON_SPARSE}
        ways = ablate.used_ways(choice, device)
        assert "kron_sparse.prepared_values" in ways
        for name in used | ways - {"kron_sparse.prepared_values"}:
            with without(name):
                other = programs_of(fastest_way(ablate.shape_in(choice), device))
                assert name not in ablate.used_ways(choice, device) - {"kron_sparse.float32_units"}
            assert other != planned, (choice, name)
            changed.add(name)
        assert programs_of(fastest_way(ablate.shape_in(choice), device)) == planned
    names = {one for one in ablate.NAMES if one.startswith("kron_sparse.")}
    # the kernel for any sizes is for what the others do not take, as complex matrices
    others = {"kron_sparse.prepared_values", "kron_sparse.library", "kron_sparse.general"}
    assert changed == names - others


def test_some_cells_of_kronecker_sparse_matrices_are_left_to_cublas(ablate):
    device = replace(DEVICES["90"], has_matrix_library=True)
    choices = ablate.sparse_choices("float16")
    found = [one for one in choices if "kron_sparse.library" in ablate.used_ways(one, device)]
    assert 0 < len(found) < len(choices)
    with without("kron_sparse.library"):
        assert all("kron_sparse.library" not in ablate.used_ways(one, device) for one in found)


def test_kernels_of_kronecker_sparse_matrices_are_compiled_once(ablate):
    device = DEVICES["90"]
    choices = [one for one in ablate.sparse_choices("float16") if "(1,48,48,64)" in one.name]
    plain = ablate.sparse_programs(choices, [], device)
    assert len(plain) == len(set(plain)) == 2
    more = ablate.sparse_programs(choices, [["kron_sparse.kept_values"]], device)
    assert more[:2] == plain
    assert len(more) == 4
    families = [f"kron_sparse.{family.name}" for family in KRON_SPARSE]
    assert ablate.sparse_programs(choices, [families], device) == plain  # nobody else does it
    assert ablate.sparse_jobs([], ["kron_sparse.tiles"]) == []
