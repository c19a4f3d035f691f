"""Takes the place of the driver: notes which kernel a program is of, and launches on the device."""

import ctypes
from types import SimpleNamespace

from fake_cupy.kernels.batch import UnsortedKernel
from fake_cupy.kernels.table import OtherKernel


def replace_driver(device):
    """Load and launch kernels on the `Device`, in the driver's place."""
    from batchkron.backends.cuda.batch import list_calls
    from batchkron.backends.cuda.diagonal import plan as diagonal
    from batchkron.backends.cuda.formula import plan as formula
    from batchkron.backends.cuda.interpolated import plan as interpolated
    from batchkron.backends.cuda.kernel import Kernel
    from batchkron.backends.cuda.kron import plan as kron
    from batchkron.backends.cuda.kron_sum import triangular_plan
    from batchkron.backends.cuda.krylov import passes as krylov
    from batchkron.backends.cuda.runtime import calls, launch, repeated_work
    from batchkron.backends.cuda.runtime import device as module
    from batchkron.backends.cuda.segmented import general
    from batchkron.backends.cuda.segmented import plan as segmented
    from batchkron.backends.cuda.step_sums import plan as step_sums
    from batchkron.backends.cuda.vector_sum import plan as vector_sum

    def load(program, _):
        kernel = SimpleNamespace(program=program, ptr=len(device.kernels) + 1)
        device.kernels.append(kernel)
        return kernel, None

    module._load = load
    address = ctypes.cast(device.launch, ctypes.c_void_p).value
    launch.driver_launch = lambda: (address, device.check)
    repeated_work.end_capture = lambda stream: stream.end_capture()
    calls.capture_number = lambda _: device.stream.capturing
    _note_made(Kernel, device.known)
    program_of = list_calls.unsorted_program

    def unsorted_program(dtype, tile, number, by_row, identities):
        assert by_row
        assert not identities
        program = program_of(dtype, tile, number, by_row, identities)
        device.known[program] = UnsortedKernel(dtype, tile, number)
        return program

    list_calls.unsorted_program = unsorted_program
    segmented.needed_kernel = lambda _, shape, limits: general.general_kernel(shape, limits)
    kernels_of = krylov.krylov_kernels

    def krylov_kernels(names, dtype, *sizes):
        (kernel,) = kernels_of(names, dtype, *sizes)  # of small systems, a kernel for all passes
        device.known[kernel.program] = OtherKernel("krylov", dtype, (names,))
        return [kernel]

    krylov.krylov_kernels = krylov_kernels
    kron._may_be_constant = lambda spec: False
    for place, name in (
        (diagonal, "diagonal"), (formula, "formula"), (triangular_plan, "back_substitution"),
        (vector_sum, "vector_sum"), (step_sums, "step_sum"),
    ):  # fmt: skip
        _note_other(place, name, device.known)
    interpolation = interpolated.interpolation_program

    def interpolation_program(kind, dtype, *numbers):
        program = interpolation(kind, dtype, *numbers)
        device.known[program] = OtherKernel(kind, dtype, numbers)
        return program

    interpolated.interpolation_program = interpolation_program


def _note_other(place, kind, known):
    name = f"{kind}_program"
    program_of = getattr(place, name)

    def program(dtype, *numbers):
        found = program_of(dtype, *numbers)
        known[found] = OtherKernel(kind, dtype, numbers)
        return found

    setattr(place, name, program)


def _note_made(kind, known):
    begin = kind.__init__

    def note(kernel, *values, **named):
        begin(kernel, *values, **named)
        known[kernel.program] = kernel

    kind.__init__ = note
