"""ASGarD's batch kernel for CPUs, compiled from its own unpacked source.

Later versions have no kernel for batch lists any more: 0.7.0a1 is the one to take.
"""

import ctypes
import os
import shutil
import subprocess
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from benchmarks.core.timing import Contender, absent
from benchmarks.cpu.contenders import Peer

DRIVER = Path(__file__).with_name("asgard_driver.cpp")
KERNEL = Path("src/device/asgard_spkronmult_cpu.cpp")
BUILD = "batchkron-benchmark"  # the folder to compile in, made in that of ASGarD's source
# the flags of ASGarD's CMake file for a release with OpenMP
FLAGS = [
    *("-std=c++17", "-O3", "-DNDEBUG", "-march=native", "-mtune=native"),
    *("-fopenmp", "-fPIC", "-shared"),
]
DEFINES = ["-DASGARD_ENABLE_DOUBLE", "-DASGARD_ENABLE_FLOAT"]


class Asgard(Peer):
    """`asgard::kronmult::cpu_sparse`: rows of products, one thread for each output block."""

    name = "ASGarD"

    def __init__(self, source):
        self.source = source

    def missing(self):
        if self.source is None:
            return "no --asgard PATH"
        if not (self.source / KERNEL).is_file():
            return f"no {KERNEL} in {self.source}"
        try:
            self.library  # noqa: B018
        except (subprocess.CalledProcessError, OSError) as error:
            return f"does not compile: {getattr(error, 'stderr', '') or error}"[:200]
        return None

    def version(self):
        """The name of the source folder, which holds it."""
        return self.source.resolve().name

    @cached_property
    def library(self):
        """The kernel and the driver, compiled when the driver is newer (about a minute)."""
        source = self.source.resolve()
        folder = source / BUILD
        library = folder / "kernel.so"
        if not library.exists() or library.stat().st_mtime < DRIVER.stat().st_mtime:
            folder.mkdir(exist_ok=True)
            # ASGarD's CMake file writes this one; the kernel needs nothing of it
            (folder / "asgard_build_info.hpp").touch()
            compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
            includes = [f"-I{path}" for path in (folder, source / "src", source / "src/device")]
            command = [compiler, *FLAGS, *DEFINES, *includes, str(source / KERNEL), str(DRIVER)]
            partly = folder / "partly.so"
            subprocess.run(
                [*command, "-o", str(partly)], check=True, capture_output=True, text=True
            )
            partly.rename(library)
        return ctypes.CDLL(str(library))

    def batch(self, data):
        """The list as rows of a sparse matrix of products; its matrices are column-major."""
        shape = data.shape
        if shape.modes > 6:
            yield absent(self.name, "cpu_sparse", "at most six modes")
            return
        pools = [np.ascontiguousarray(pool.swapaxes(1, 2)).reshape(-1) for pool in data.pools]
        matrices = np.concatenate(pools)
        area = shape.size**2
        offsets = (data.ids + shape.POOL * np.arange(shape.modes)) * area
        starts = np.arange(shape.blocks + 1) * shape.contributions
        lists = [np.ascontiguousarray(a, np.intc) for a in (starts, data.sources, offsets)]
        function = getattr(self.library, f"multiply_{data.dtype}")
        calls = [
            partial(
                function,
                *(shape.modes, shape.size, shape.blocks),
                *(ctypes.c_void_p(a.ctypes.data) for a in (*lists, matrices, x, out)),
            )
            for x, out in zip(data.inputs, data.outputs, strict=True)
        ]
        if calls[0]() != 0:
            yield absent(self.name, "cpu_sparse", "refuses these sizes")
            return
        yield Contender(self.name, "cpu_sparse", calls, keeps=[*lists, matrices])
