"""Every device template compiles for the shapes that users bring, and spills no more than before.

No device is needed.
"""

import json
import re

import kernel_resources
import numpy as np
import pytest
from dense_oracle import DTYPES
from device_programs import (
    MAX_STEP_VECTORS,
    PRECISIONS,
    SHAPES,
    diagonal_programs,
    explicit_programs,
    formula_programs,
    gram_programs,
    krylov_programs,
    precision_programs,
    programs_of,
    rank_programs,
    row_gradients_kernels,
    segmented_programs,
    sliced_programs,
    staged_programs,
    step_sum_programs,
    sums_programs,
    systems_programs,
    unit_programs,
    vector_sum_programs,
)
from kernel_resources import (
    TESTED,
    Kernel,
    compiled,
    dtype_of,
    growth,
    kernels_for,
    kernels_of,
    label_of,
    precision_label,
    resources,
)
from nvrtc import DEVICES, compile_program

from batchkron.backends.cuda.batch.general import batch_arguments
from batchkron.backends.cuda.batch.kernel import register_batch_arguments
from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments
from batchkron.backends.cuda.explicit.bands import explicit_arguments
from batchkron.backends.cuda.explicit.tiles import tiles_arguments
from batchkron.backends.cuda.formula.kernel import formula_arguments
from batchkron.backends.cuda.gram.registers import small_arguments
from batchkron.backends.cuda.gram.rows import row_arguments
from batchkron.backends.cuda.gram.tiles import gram_arguments
from batchkron.backends.cuda.gram.total import total_arguments
from batchkron.backends.cuda.interpolated.kernel import interpolation_arguments
from batchkron.backends.cuda.interpolated.pieces import fold_arguments
from batchkron.backends.cuda.kron.general import group_arguments
from batchkron.backends.cuda.kron.kernel import kron_arguments
from batchkron.backends.cuda.kron_sum.back_substitution import back_substitution_arguments
from batchkron.backends.cuda.kron_sum.systems import sum_arguments
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.backends.cuda.segmented.edges import segmented_arguments
from batchkron.backends.cuda.step_sums.kernel import step_sum_arguments
from batchkron.backends.cuda.steps import has_fixed_steps, plan_steps, steps_argument
from batchkron.backends.krylov_arguments import (
    ARGUMENTS,
    MAX_SUMS,
    MAX_VECTORS,
    STATE_FIELDS,
    Field,
    Flag,
    Progress,
    small_size,
)

TABLE = json.loads(kernel_resources.TABLE.read_text())
TESTED_SHAPES = [
    pytest.param(index, capability, id=f"{label_of(index)}-{capability}")
    for capability, indices in TESTED.items()
    for index in indices
]


@pytest.fixture
def table(capability):
    """Registers and stack of all kernels, where they can be compared."""
    if TABLE["nvrtc"] != kernel_resources.NVRTC:
        pytest.skip(
            f"kernel_resources.json is of NVRTC {TABLE['nvrtc']}, not {kernel_resources.NVRTC}"
        )
    return TABLE["kernels"][f"sm_{capability}"]


AGAIN = "if this is meant, write the table again: python tests/support/kernel_resources.py"


def templates_of(indices, capability):
    """The templates that shapes need, each with a dtype, and each with flags and types of ids."""
    found = set()
    for index in indices:
        dtype = dtype_of(index)
        for program in programs_of(*SHAPES[index], dtype, DEVICES[capability]):
            flags = tuple(re.findall(r"\b(true|false|int|long long)\b", program.expression))
            found |= {(program.header, dtype), (program.header, flags)}
    return found


def test_the_shapes_on_sm_80_have_every_template_in_every_dtype_and_with_every_flag():
    everything = templates_of(range(len(SHAPES)), "80")
    assert templates_of(TESTED["80"], "80") == everything


@pytest.mark.parametrize(("index", "capability"), TESTED_SHAPES)
def test_templates_compile(index, capability):
    for kernel in kernels_of(index, capability):
        assert kernel_resources.is_of_its_header(kernel)


@pytest.mark.parametrize(("index", "capability"), TESTED_SHAPES)
def test_kernels_take_no_more_registers_than_before(index, capability, table):
    label = label_of(index)
    assert label in table, AGAIN
    grown = list(growth(kernels_of(index, capability), table[label]))
    assert not grown, "\n".join([label, *grown, AGAIN])


@pytest.mark.parametrize("capability", DEVICES)
def test_explicit_products_compile(dtype, capability):
    for kernel in kernels_for(explicit_programs, dtype, capability):
        assert kernel_resources.is_of_its_header(kernel)


@pytest.mark.parametrize("capability", DEVICES)
def test_explicit_products_take_no_more_registers(dtype, capability, table):
    grown = list(
        growth(
            kernels_for(explicit_programs, dtype, capability),
            table[f"{kernel_resources.EXPLICIT} {dtype}"],
        )
    )
    assert not grown, "\n".join([*grown, AGAIN])


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("case", PRECISIONS, ids=precision_label)
def test_less_precise_kernels_compile(case, capability, table):
    kernels = compiled(precision_programs(case, DEVICES[capability]), capability)
    assert all("Tf32Pass" in kernel.name for kernel in kernels)
    grown = list(growth(kernels, table[precision_label(case)]))
    assert not grown, "\n".join([*grown, AGAIN])


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_krylov_methods_compile(dtype, capability):
    for kernel in kernels_for(krylov_programs, dtype, capability):
        assert "krylov" in kernel.name
        assert kernel.registers <= 128  # two thread blocks of 256 threads
        assert kernel.stack <= 64


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "capability"), [("d", "90"), ("F", "80")])
def test_krylov_methods_on_ranks_compile(dtype, capability):
    for kernel in kernels_for(rank_programs, dtype, capability):
        assert kernel.registers <= 128
        assert kernel.stack <= 64


@pytest.mark.parametrize("capability", DEVICES)
def test_diagonal_products_compile(dtype, capability):
    for kernel in kernels_for(diagonal_programs, dtype, capability):
        assert "diagonal_multiply" in kernel.name
        assert kernel.registers <= 80
        assert kernel.stack == 0


@pytest.mark.parametrize("capability", DEVICES)
def test_formulas_compile(capability):
    for kernel in kernels_for(formula_programs, "d", capability):
        assert "formula_values" in kernel.name
        assert kernel.registers <= 128  # two thread blocks of 256 threads


@pytest.mark.parametrize("capability", DEVICES)
def test_linear_combinations_compile(dtype, capability):
    for kernel in kernels_for(vector_sum_programs, dtype, capability):
        assert "vector_sum" in kernel.name
        assert kernel.registers <= 128  # two thread blocks of 256 threads
        assert kernel.stack == 0


@pytest.mark.parametrize("capability", DEVICES)
def test_sums_of_steps_compile(dtype, capability):
    for kernel in kernels_for(step_sum_programs, dtype, capability):
        assert "step_sum" in kernel.name
        assert kernel.stack == 0
        if f"Li{MAX_STEP_VECTORS}E" not in kernel.name:  # which holds all vectors' elements at once
            assert kernel.registers <= 64  # four thread blocks of 256 threads


@pytest.mark.parametrize("capability", DEVICES)
def test_gram_matrices_compile(dtype, capability):
    for kernel in kernels_for(gram_programs, dtype, capability):
        assert "gram" in kernel.name
        if not (dtype == np.complex128 or (dtype == np.float64 and "registers" in kernel.name)):
            assert kernel.registers <= 128  # two thread blocks of 256 threads
        # tiles of 64 x 64, on sm_80, outside of their loops
        assert kernel.stack <= (32 if "mode_gramIfLi64" in kernel.name else 0)


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("real", [np.float32, np.float64], ids=str)
def test_all_gradients_by_one_kernel_compile(real, capability):
    planned = list(row_gradients_kernels(np.dtype(real), DEVICES[capability]))
    assert len(planned) >= 3
    kernels = compiled([rows.program for rows in planned], capability)
    for rows, kernel in zip(planned, kernels, strict=True):
        assert "row_gradients" in kernel.name
        assert kernel.registers * rows.launch.threads * rows.launch.resident <= 65536
        assert kernel.stack <= 16


@pytest.mark.parametrize("capability", DEVICES)
def test_kronecker_sums_of_many_systems_compile(dtype, capability):
    for kernel in kernels_for(sums_programs, dtype, capability):
        assert "kron_sum" in kernel.name
        assert kernel.registers <= 168
        assert kernel.stack <= 8


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_whole_iterations_of_many_systems_compile(dtype, capability):
    kernels = kernels_for(systems_programs, dtype, capability)
    assert len(kernels) >= 5
    for kernel in kernels:
        assert "krylov_systems" in kernel.name
        assert kernel.registers <= 216
        assert kernel.stack <= 8


@pytest.mark.parametrize("capability", DEVICES)
def test_sums_over_edges_compile_and_take_no_more_registers(dtype, capability, table):
    kernels = kernels_for(segmented_programs, dtype, capability)
    for kernel in kernels:
        assert kernel_resources.is_of_its_header(kernel)
    grown = list(growth(kernels, table[f"{kernel_resources.SEGMENTED} {dtype}"]))
    assert not grown, "\n".join([*grown, AGAIN])


@pytest.mark.parametrize("capability", DEVICES)
def test_staged_sums_compile_and_take_no_more_registers(dtype, capability, table):
    kernels = kernels_for(staged_programs, dtype, capability)
    assert len(kernels) == (12 if capability == "90" else 0)
    for kernel in kernels:
        assert "staged_sums" in kernel.name
    grown = list(growth(kernels, table[f"{kernel_resources.STAGED} {dtype}"]))
    assert not grown, "\n".join([*grown, AGAIN])


@pytest.mark.parametrize("capability", DEVICES)
def test_lists_on_matrix_units_compile_and_take_no_more_registers(capability, table):
    kernels = compiled(unit_programs(DEVICES[capability]), capability)
    assert all("batched_unit" in kernel.name for kernel in kernels)
    grown = list(growth(kernels, table[kernel_resources.UNITS]))
    assert not grown, "\n".join([*grown, AGAIN])


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_products_by_slices_compile(capability, table):
    kernels = compiled(sliced_programs(DEVICES[capability]), capability)
    assert all("kron_slices" in kernel.name for kernel in kernels)
    grown = list(growth(kernels, table[kernel_resources.SLICES]))
    assert not grown, "\n".join([*grown, AGAIN])


def test_the_table_has_no_other_shapes():
    labels = {label_of(index) for index in range(len(SHAPES))}
    labels.update([kernel_resources.UNITS, kernel_resources.SLICES])
    labels |= {precision_label(case) for case in PRECISIONS}
    others = (kernel_resources.EXPLICIT, kernel_resources.SEGMENTED, kernel_resources.STAGED)
    labels |= {f"{kind} {dtype}" for kind in others for dtype in DTYPES}
    for shapes in TABLE["kernels"].values():
        assert set(shapes) == labels, AGAIN


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) f(double* x) {
  double held[64];
#pragma unroll
  for (int k = 0; k < 64; ++k) held[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; ++k) x[threadIdx.x * 64 + k] = held[63 - k] * held[(7 * k) % 64];
}
"""


def test_spilled_registers_are_seen_in_the_machine_code():
    few = "__global__ void f(int* x) { *x = 1; }"
    registers, stack = resources(compile_program(few, {}, "f", compile_options("90"))[1])
    assert 0 < registers <= 32
    assert stack == 0
    registers, stack = resources(compile_program(SPILLS, {}, "f", compile_options("90"))[1])
    assert registers == 32  # all that 2048 threads leave to each
    assert stack >= 8 * 64 - 4 * 32


def test_a_kernel_that_grows_is_named():
    before = [["kron/general", 40, 0]]
    same, larger = (
        Kernel("cuda/kron/general.cuh", "f", 48, 0),
        Kernel("cuda/kron/general.cuh", "f", 49, 8),
    )
    assert not list(growth([same], before))
    registers, stack = growth([larger], before)
    assert "49 registers, 40" in registers
    assert "8 bytes of stack, 0" in stack
    assert "other kernels" in next(growth([same, same], before))


def layout_assertions(structure, layout):
    """Static assertions that a C++ structure has a NumPy structure's size and offsets."""
    yield f"static_assert(sizeof({structure}) == {layout.itemsize});"
    for field, (_, offset) in ((name, layout.fields[name][:2]) for name in layout.names):
        yield f"static_assert(__builtin_offsetof({structure}, {field}) == {offset});"


def test_arguments_are_laid_out_as_in_the_kernels(dtype):
    scalar = {
        "float32": "float",
        "float64": "double",
        "complex64": "batchkron::Complex<float>",
        "complex128": "batchkron::Complex<double>",
    }[dtype.name]
    step = "batchkron::FixedStep<1, 2, 2, 1, 2>"
    fixed = f"batchkron::FixedSteps<{scalar}, {step}, {step}, {step}>"
    runtime = f"batchkron::RuntimeSteps<{scalar}>"
    lines = [f'#include "{name}"' for name in device_sources()]
    structures = {
        f"batchkron::BatchArguments<{scalar}, {fixed}>": batch_arguments(dtype, 3, True),
        f"batchkron::BatchArguments<{scalar}, {runtime}>": batch_arguments(dtype, 13, False),
        f"batchkron::GroupArguments<{scalar}, {fixed}>": group_arguments(dtype, 3),
        f"batchkron::KronArguments<{scalar}, 3>": kron_arguments(dtype, 3),
        f"batchkron::RegisterBatchArguments<{scalar}, 3>": register_batch_arguments(dtype, 3),
        f"batchkron::ExplicitKronArguments<{scalar}>": explicit_arguments(),
        f"batchkron::ExplicitTilesArguments<{scalar}>": tiles_arguments(),
        f"batchkron::DiagonalArguments<{scalar}>": diagonal_arguments(dtype),
        "batchkron::FormulaArguments<3>": formula_arguments(3),
        f"batchkron::GramArguments<{scalar}>": gram_arguments(),
        f"batchkron::SmallGramArguments<{scalar}>": small_arguments(),
        f"batchkron::GramTotalArguments<{scalar}, 1>": total_arguments(1),
        f"batchkron::GramTotalArguments<{scalar}, 4>": total_arguments(4),
        f"batchkron::RowGradientsArguments<{scalar}, 3>": row_arguments(3),
        f"batchkron::SegmentedArguments<{scalar}>": segmented_arguments(dtype),
        f"batchkron::StepSumArguments<{scalar}, 3>": step_sum_arguments(3),
        f"batchkron::SumArguments<{scalar}, 3>": sum_arguments(dtype, 3),
        f"batchkron::FoldArguments<{scalar}>": fold_arguments(dtype),
        f"batchkron::InterpolationArguments<{scalar}, 3>": interpolation_arguments(dtype, 3),
        f"batchkron::BackSubstitutionArguments<{scalar}, 3>": back_substitution_arguments(dtype, 3),
        runtime: steps_argument(13, False),
        f"batchkron::device::KrylovArguments<{scalar}>": ARGUMENTS,
    }
    for k, (structure, layout) in enumerate(structures.items()):
        lines.append(f"using Structure{k} = {structure};")
        lines += layout_assertions(f"Structure{k}", layout)
    lines.append("__global__ void nothing() {}")
    name, _ = compile_program("\n".join(lines), device_sources(), "nothing", compile_options("90"))
    assert "nothing" in name


def test_krylov_methods_are_described_as_in_the_kernels(dtype):
    scalar = {"f": "float", "d": "double", "F": "Complex<float>", "D": "Complex<double>"}[
        dtype.char
    ]
    names = {"NOT_FINITE": "kNotFinite", "SPENT": "kSpent", "NORM_B": "kNormB"}
    names |= {"COLUMNS": "gmres::kColumns", "KEPT": "gmres::kKept"}

    def constant(member):
        words = member.name.title().split("_")
        return names.get(member.name, "k" + "".join(words))

    lines = ['#include "krylov/gmres.hpp"', "using namespace batchkron::device;"]
    for member in [*Progress, *Field, *Flag]:
        lines.append(f"static_assert({constant(member)} == {int(member)});")
    sizes = {"kStateFields": STATE_FIELDS, "kMaxSums": MAX_SUMS, "kVectors": MAX_VECTORS}
    for name, size in sizes.items():
        lines.append(f"static_assert({name} == {size});")
    lines.append("__global__ void nothing() {}")
    compile_program("\n".join(lines), device_sources(), "nothing", compile_options("90"))
    reals = 2 if dtype.kind == "c" else 1
    for restart in (1, 7):  # three kinds of arrays of gmres::Triangle
        matrices, columns, real_columns = 2, 7, 2
        wanted = reals * (matrices * restart**2 + columns * (restart + 1))
        assert small_size(restart, dtype) == wanted + real_columns * (restart + 1), scalar


def test_an_error_carries_the_compilers_log():
    with pytest.raises(RuntimeError, match="no_such_thing"):
        compile_program("__global__ void f() { no_such_thing(); }", {}, "f", compile_options("90"))


def test_sizes_of_at_most_twelve_steps_are_compiled_in():
    for modes in (1, 12, 13, 70):
        steps = plan_steps((2,) * modes, (2,) * modes, range(modes), np.dtype("f8"))
        assert has_fixed_steps(steps) == (modes <= 12)
