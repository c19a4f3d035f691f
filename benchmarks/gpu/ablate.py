"""What each family of kernels is worth: cells whose plan has it, with and without it.

benchmarks/README.md says what `WAYS` are, which can be switched off beside families of kernels.
"""

import fnmatch
import math
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product, starmap
from operator import itemgetter
from unittest import mock

from batchkron.backends.cuda.choose import ORDER
from batchkron.backends.cuda.choose import families as families_of
from batchkron.backends.cuda.kernel import Family
from batchkron.backends.cuda.kernel_family import is_enabled, without
from batchkron.backends.cuda.kron.families import FAMILIES as KRON
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.families import FAMILIES as KRON_SPARSE
from batchkron.backends.cuda.kron_sparse.library import LIBRARY, LibraryProduct
from batchkron.backends.cuda.kron_sparse.tiles.tile import KEPT_VALUES
from batchkron.backends.cuda.kron_sparse.transposed import TRANSPOSED, programs_of
from benchmarks.core.checks import relative_error
from benchmarks.core.tables import groups, words
from benchmarks.gpu.cases import sparse_cases as cases
from benchmarks.gpu.cases.list_cases import HUGE, LARGE
from benchmarks.gpu.compiling import compile_program
from benchmarks.gpu.options import Choice

PART = "kronecker-sparse"
PRECISION = "tf32x3"


# what `kernel_family.without` switches off for this benchmark alone
PREPARED = "kron_sparse.prepared_values"
UNITS = "kron_sparse.float32_units"
WAYS = LIBRARY, TRANSPOSED, KEPT_VALUES, PREPARED, UNITS
FAMILIES = {
    f"{family.operation}.{family.name}": family
    for table in (KRON, KRON_SPARSE, *map(families_of, ORDER))
    for family in table
}
NAMES = (*FAMILIES, *WAYS)
PARTS = ("kron", "precision", "pde", "batches", "atomic", "lists", "sweeps", "explicit", PART)
MIN_GAIN = 1.10  # a family that gains less does not stay
SYSTEMS = ((4096, (8, 8, 8)), (4096, (16, 16)), (1024, (16, 16, 16)))  # and sizes of their modes


def sparse_choices(dtype):
    small = (*cases.FIRST, *cases.SMALL, *cases.LARGE)
    patterns = dict.fromkeys(cases.SPARSE_DTYPES, small) | {PRECISION: cases.FIRST}
    return [
        Choice(PART, case.name, one, case)
        for one, own in patterns.items()
        if dtype in (None, one)
        for case in starmap(cases.SparseCase, product(own, cases.LAYOUTS))
    ]


def shape_in(choice):
    if choice.dtype != PRECISION:
        return cases.shape_of(choice.case, choice.dtype)
    products = PRODUCTS[PRECISION] if is_enabled(UNITS) else 0
    return replace(cases.shape_of(choice.case, "float32"), products=products)


def used_ways(choice, device):
    """Which of `WAYS` a cell's plan has."""
    way = fastest_way(shape_in(choice), device)
    is_turned = isinstance(way, tuple)
    found = {PREPARED, *([UNITS] if choice.dtype == PRECISION else [])}
    found |= {TRANSPOSED} if is_turned else set()
    for own in [part.product for part in way] if is_turned else [way]:
        if isinstance(own, LibraryProduct):
            found.add(LIBRARY)
        elif getattr(own.variant, "kept", False):
            found.add(KEPT_VALUES)
    return found


def sparse_programs(cells, groups, device):
    """The kernels of the cells with all families, and without each group of them; each once."""
    found = {}
    for names in ((), *groups):
        with without(*names):
            for choice in cells:
                with suppress(LookupError):  # nobody else does it: reported where it is measured
                    found |= dict.fromkeys(programs_of(fastest_way(shape_in(choice), device)))
    return list(found)


def sparse_subject(choice):
    import cupy

    import batchkron as bk
    from benchmarks.gpu.parts.kron_sparse import SparseData

    in_tf32 = choice.dtype == PRECISION
    data = SparseData(choice.case, "float32" if in_tf32 else choice.dtype)

    def product():
        precision = PRECISION if in_tf32 and is_enabled(UNITS) else None
        options = {"layout": choice.case.layout, "precision": precision}
        if is_enabled(PREPARED):
            apply = bk.KroneckerSparse(data.values, **options).to("cuda").apply
        else:
            multiply = bk.kronecker_sparse_multiply
            apply = partial(multiply, cupy.asarray(data.values), **options)
        return [partial(apply, x, out=y) for x, y in data.pairs]

    return product, data.out


class WrongError(ArithmeticError):
    """Without a family the result is another one."""


def _launched_sparse(found):
    """Collect the families of kernels for Kronecker-sparse matrices, many of which are compared."""
    if find_spec("cupy") is None:
        return nullcontext()  # nothing is launched
    from batchkron.backends.cuda.kron_sparse import plan

    launch_of = plan.launch_of

    def launched(kernel, *given):
        found.add(f"kron_sparse.{kernel.family.name}")
        return launch_of(kernel, *given)

    return mock.patch.object(plan, "launch_of", launched)


@contextmanager
def used_families():
    """Collect the families whose kernels are asked for inside a ``with`` block."""
    found = set()

    def recording(name, work):
        def recorded(*given):
            made = work(*given)
            if made is not None:
                found.add(name)
            return made

        return recorded

    with ExitStack() as stack:
        for name, family in FAMILIES.items():
            if family in KRON_SPARSE:
                continue
            # a Kron-Matmul's kernel is made once it is chosen
            owner = family if isinstance(family, Family) else type(family)
            recorded = recording(name, owner.kernel)
            stack.enter_context(mock.patch.object(owner, "kernel", recorded))
        stack.enter_context(_launched_sparse(found))
        yield found


def asked_families(texts):
    """The families, or groups of them, that are named: all, by patterns, or one by one."""
    found = []
    for text in texts:
        pattern = "*" if text == "all" else text
        found += fnmatch.filter(NAMES, pattern) or [text]
    return list(dict.fromkeys(found))


def used_of(families, used):
    """Those of the families, or groups of them, of which one is used."""
    return [name for name in families if used.intersection(name.split("+"))]


def compile_with_and_without(job, families):
    """Do a job that compiles, and again without each of the families that it uses."""
    with without(), used_families() as used:  # plans that are remembered ask for no kernel
        job()
    for name in used_of(families, used):
        # what nobody else does is reported where it is measured
        with without(*name.split("+")), suppress(Exception):
            job()


def sparse_jobs(cells, families):
    chosen = [one for one in cells if one.part == PART]
    if not chosen:
        return []
    groups = [name.split("+") for name in families]
    found = sparse_programs(chosen, groups, current_limits())
    return [partial(compile_program, program) for program in found]


def cells_without_choice(choices, families, dtype):
    """The cells where neither part nor case is asked for: those that may have the families."""
    sparse = [name for name in families if name.startswith("kron_sparse.")]
    found = []
    if len(sparse) < len(families):
        found += [*choices, *(one for one in systems() if dtype in (None, one.dtype))]
    return found + (sparse_choices(dtype) if sparse else [])


def subject_of(choice):
    """How calls are prepared, anew each time (operators remember kernels), and where they write."""
    from benchmarks.gpu import data

    case, dtype = choice.case, choice.dtype
    if choice.part == PART:
        return sparse_subject(choice)
    if choice.part == "systems":
        return systems_subject(*case, dtype)
    if (choice.part == "lists" and case.unknowns >= HUGE) or (
        choice.part == "sweeps" and case.operator(dtype).shape[0] >= LARGE
    ):
        return None
    found = data.subject_of(choice)
    return None if found is None else (found.calls, found.out)


def systems_subject(count, sizes, dtype):
    import cupy

    import batchkron as bk
    from benchmarks.core.device_timing import random_array

    modes = [random_array((count, n, n), dtype, seed).get() for seed, n in enumerate(sizes)]
    shape = count, math.prod(sizes)
    given, out = random_array(shape, dtype), cupy.empty(shape, dtype)
    return lambda: [partial(bk.KroneckerSum(modes).to("cuda").apply, given, out=out)], out


def systems():
    return [
        Choice("systems", f"{count} systems {'×'.join(map(str, sizes))}", dtype, (count, sizes))
        for count, sizes in SYSTEMS
        for dtype in ("float32", "float64")
    ]


def gains(choices, families):
    """Times of cells in µs, with all families and "without" one, or several, that their plans have.

    "without" is None where no other family does it; the "reason" says what happened then.
    """
    from benchmarks.gpu.data import free_memory

    for choice in choices:
        subject = subject_of(choice)
        if subject is not None:
            yield from gains_of(choice, *subject, families)
        del subject
        free_memory()


def gains_of(choice, make, out, families):
    from benchmarks.core.device_timing import TOLERANCE, timed

    where = {"part": choice.part, "case": choice.name, "dtype": choice.dtype}
    with without(), used_families() as used:
        calls = make()
        calls[-1]()  # functions ask for kernels in their first call
    if choice.part == PART:
        used |= used_ways(choice, current_limits())
    asked = used_of(families, used)
    if not asked:
        return
    with_all = timed(calls)
    expected = out.copy()

    def again():
        """The time without a family; the result must be the one before."""
        out.fill(math.nan)
        time = timed(make())
        error = relative_error(out, expected)
        if not error <= 10 * TOLERANCE[choice.dtype]:
            raise WrongError(f"relative difference {error:.1e}")
        return time

    for name in asked:
        time, reason = None, ""
        with without(*name.split("+")):
            try:
                time = again()
            except Exception as error:  # nobody else does it, or wrongly: the reason is reported
                reason = f"{type(error).__name__}: {error}"
        found = {"family": name, **where, "microseconds": with_all, "without": time}
        factor = None if time is None else time / with_all
        yield {**found, "reason": reason, "factor": factor}


def current_limits():
    import cupy

    from batchkron.backends.cuda.runtime.device import device_limits

    return device_limits(cupy.cuda.Device().id)


def mean_gain(found):
    logs = [math.log(one["factor"]) for one in found if one["factor"] is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def by_family(found):
    return groups(found, lambda one: one["family"])


def lines(found, families):
    cells = by_family(found)
    for name in families:
        own = cells.get(name, [])
        known = sorted((one for one in own if one["factor"] is not None), key=itemgetter("factor"))
        said = {"family": name, "cells": len(own), "only_one": len(own) - len(known)}
        if known:
            mean, last = mean_gain(own), known[-1]
            said |= {"mean": mean, "is_low": mean < MIN_GAIN and len(known) == len(own)}
            said |= {"from": known[0]["factor"], "to": last["factor"]}
            said["in"] = f"{last['part']} {last['case']} {last['dtype']}"
        yield words(said)
