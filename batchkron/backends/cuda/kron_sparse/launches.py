"""Launches of the ways to multiply by a Kronecker-sparse matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchkron.backends.cpu.native import DeviceCall
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sparse.transposed import DirectWay, Way, workspace_of
from batchkron.backends.cuda.runtime.launch import LaunchStep, Place
from batchkron.backends.cuda.runtime.matrix_library import LibraryMultiply
from batchkron.backends.cuda.runtime.program import Program


def product_steps(
    way: Way,
    device: int,
    x: Place,
    y: Place,
    values: Place,
    workspace: Place,
    *of_ending: Place,
    load: Callable[[Program], Any] | None = None,
) -> list[LaunchStep]:
    """Return the launches of a way for y = A x; ``of_ending``: bias and z of a kernel's ending.

    ``load`` returns the kernel of a program if it is not that of the cache.
    """
    if not isinstance(way, tuple):
        places = [x, y, values, *([workspace] if workspace_of(way) else []), *of_ending]
        return [LaunchStep.of(direct_launch(way, device, load), places)]
    steps, done = [], 0
    for part in way:
        results, rest = workspace.plus(part.results_at), workspace.plus(part.rest_at)
        vectors = x.plus(done * part.given // part.vectors)
        result = y.plus(done * part.results // part.vectors)
        forward, back = (
            launch_of(one, device, 2, code=load and load(one.program))
            for one in (part.forward, part.back)
        )
        steps += [
            LaunchStep.of(forward, (vectors, workspace)),
            *product_steps(part.product, device, workspace, results, values, rest, load=load),
            LaunchStep.of(back, (results, result)),
        ]
        done += part.vectors
    return steps


def direct_launch(
    way: DirectWay, device: int, load: Callable[[Program], Any] | None = None
) -> DeviceCall:
    """Return what takes the addresses of x, y, the values, and of a workspace if it needs one."""
    if isinstance(way, Kernel):
        return launch_of(way, device, 3, "accumulate", code=load and load(way.program))
    return LibraryMultiply(way.products, way.shape.dtype, way.shape.itemsize, device)
