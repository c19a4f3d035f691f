"""Every device template compiles for the shapes that users bring; no device is needed."""

import numpy as np
import pytest
from nvrtc import DEVICES, compile_program
from oracle import DTYPES

from batchkron.backends.device_arguments import (
    batch_arguments,
    explicit_arguments,
    group_arguments,
    kron_arguments,
    register_batch_arguments,
    segments_arguments,
    steps_argument,
)
from batchkron.backends.device_batches import register_tiling
from batchkron.backends.device_explicit import (
    DeviceMatrix,
    ExplicitKnobs,
    SegmentCut,
    explicit_cut,
)
from batchkron.backends.device_fibres import fibre_groups
from batchkron.backends.device_programs import (
    batch_program,
    compile_options,
    device_sources,
    explicit_program,
    fibre_program,
    group_program,
    has_fixed_steps,
    register_batch_program,
    register_program,
    segments_program,
)
from batchkron.backends.device_registers import register_groups
from batchkron.backends.device_tiling import (
    batch_tiling,
    kron_groups,
    plan_order,
    plan_steps,
)

# factors (P, Q), rows of a Kron-Matmul, vectors of a batch at once
SHAPES = [
    ([(1, 1)], 1, 1),
    ([(4, 4)], 1, 1),
    ([(2, 2)] * 2, 5, 3),
    ([(4, 4)] * 2, 1024, 1),
    ([(2, 2)] * 3, 1024, 1),
    ([(3, 3)] * 3, 1, 33),
    ([(8, 8)] * 3, 156, 1),
    ([(4, 4)] * 4, 1024, 1),
    ([(3, 3)] * 6, 1024, 1),
    ([(2, 2)] * 9, 20, 1),
    ([(8, 8)] * 5, 1024, 1),
    ([(32, 32)] * 3, 1024, 1),
    ([(16, 16)] * 4, 1024, 1),
    ([(64, 64)] * 2, 1024, 1),
    ([(64, 64)] * 3, 16, 1),
    ([(128, 128)] * 3, 16, 1),
    ([(128, 128)] * 2, 1024, 1),
    ([(52, 65), (50, 20)], 10, 1),
    ([(3, 4), (4, 3), (2, 5)], 1, 7),
    ([(7, 7), (5, 5), (6, 6)], 64, 1),
    ([(1, 31), (17, 1), (13, 2)], 300, 1),
    ([(2, 2)] * 13, 1, 1),
    ([(2, 20_000)], 3, 2),
    ([(20_000, 3), (2, 2)], 1, 1),
    ([(2, 2)] * 6, 1, 1),
    ([(3, 3)] * 4, 1, 1),
    ([(4, 4)] * 6, 1, 1),
    ([(5, 5)] * 4, 1, 1),
    ([(8, 8)] * 2, 1, 1),
    ([(2, 3), (4, 3), (3, 4), (3, 2)], 1, 1),
]


def programs_of(shapes, rows, inner, dtype, limits):
    """All kernels that a Kron-Matmul and a batch list of this shape need."""
    outputs, inputs = ([shape[axis] for shape in shapes] for axis in (0, 1))
    for group in kron_groups(inputs, outputs, rows, 1, dtype, limits):
        yield group_program(dtype, group.tiling)
    shape = tuple(inputs), tuple(outputs), rows, inner, dtype
    for group in fibre_groups(*shape, limits) or ():
        yield fibre_program(dtype, group.tile)
    for constant in (False, True):
        for group in register_groups(*shape, constant, limits) or ():
            yield register_program(dtype, group.tile)
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    for owner, buffers in ((False, 2), (True, 3)):
        tiling = batch_tiling(steps, inner, buffers, dtype.itemsize, limits)
        yield batch_program(dtype, tiling, owner)
    for short_ids, identities in ((True, False), (False, True)):
        registers = register_tiling(
            steps, dtype.itemsize, 500, 32_000, short_ids, identities, limits
        )
        if registers is not None:
            yield register_batch_program(dtype, registers)


def compiled(program, capability):
    return compile_program(
        program.source, device_sources(), program.expression, compile_options(capability)
    )


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(SHAPES)))
def test_templates_compile(index, capability):
    dtype = np.dtype(DTYPES[index % len(DTYPES)])
    for program in programs_of(*SHAPES[index], dtype, DEVICES[capability]):
        name, code = compiled(program, capability)
        assert program.header.removesuffix(".cuh") in name
        assert code.startswith(b"\x7fELF")


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("width", [1, 3, 32, 60_000])
def test_explicit_products_compile(dtype, capability, width):
    a = DeviceMatrix(0, 5, 7, 7, 1)
    b = DeviceMatrix(0, width, width, width, 1)
    for out in (0, dtype.itemsize // 2) if dtype.kind == "c" else (0, dtype.itemsize):
        for segments in (False, True):
            knobs = ExplicitKnobs(segments=segments)
            cut = explicit_cut(a, b, out, dtype, DEVICES[capability], knobs)
            if isinstance(cut, SegmentCut):
                program = segments_program(dtype, cut.kernel)
            else:
                program = explicit_program(dtype, cut.kernel)
            name, code = compiled(program, capability)
            assert program.header.removesuffix(".cuh") in name
            assert code.startswith(b"\x7fELF")


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
        f"batchkron::ExplicitSegmentsArguments<{scalar}>": segments_arguments(),
        runtime: steps_argument(13, False),
    }
    for k, (structure, layout) in enumerate(structures.items()):
        lines.append(f"using Structure{k} = {structure};")
        lines += layout_assertions(f"Structure{k}", layout)
    lines.append("__global__ void nothing() {}")
    name, _ = compile_program("\n".join(lines), device_sources(), "nothing", compile_options("90"))
    assert "nothing" in name


def test_an_error_carries_the_compilers_log():
    with pytest.raises(RuntimeError, match="no_such_thing"):
        compile_program("__global__ void f() { no_such_thing(); }", {}, "f", compile_options("90"))


def test_sizes_of_at_most_twelve_steps_are_compiled_in():
    for modes in (1, 12, 13, 70):
        steps = plan_steps((2,) * modes, (2,) * modes, range(modes), np.dtype("f8"))
        assert has_fixed_steps(steps) == (modes <= 12)
