"""Programs: specialisations of the kernel templates in ``csrc``, and the keys of their cache.

A program is a header and a C++ name expression such as ``kernel<float, 4>``; NVRTC compiles it for
the exact shape. Headers are named by their path below ``csrc``, by which they include each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

_FOLDERS = ("cuda", "krylov")  # folders of csrc with headers for NVRTC

SCALARS = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.complex64): "batchkron::Complex<float>",
    np.dtype(np.complex128): "batchkron::Complex<double>",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel: the header that defines its template, and the specialisation's expression.

    If ``constants`` is not 0, the kernel's module has that many factor elements of the C++ type
    ``scalar`` in constant memory.
    """

    header: str
    expression: str
    constants: int = 0
    scalar: str = ""

    @property
    def source(self) -> str:
        """The translation unit to compile."""
        include = f'#include "{self.header}"\n'
        if not self.constants:
            return include
        return (
            '#include "cuda/common/scalar.cuh"\n'
            f"#define BATCHKRON_SCALAR {self.scalar}\n"
            f"#define BATCHKRON_CONSTANTS {self.constants}\n{include}"
        )


def _sources_folder() -> Traversable:
    """Return the folder ``csrc``.

    Wheels contain the headers for the device as ``batchkron/csrc``. With an editable install they
    are in the source tree: ``csrc`` beside the package.
    """
    packaged = files("batchkron") / "csrc"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "csrc"


def _headers(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every header below a folder."""
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _headers(entry, name)
        elif name.endswith((".cuh", ".hpp")):
            yield name, entry.read_text()


@lru_cache(maxsize=1)
def device_sources() -> Mapping[str, str]:
    """Return the text of every header, by name; FileNotFoundError if there are none."""
    csrc = _sources_folder()
    folders = [name for name in _FOLDERS if (csrc / name).is_dir()]
    found = [header for name in folders for header in _headers(csrc / name, name)]
    if not found:
        raise FileNotFoundError(f"{csrc} holds no device templates; install batchkron again")
    return dict(sorted(found))


def compile_options(compute_capability: str) -> tuple[str, ...]:
    """Return NVRTC's options for a compute capability such as "90".

    Functions without a marker are compiled for the device; NVRTC before 13.1 would otherwise treat
    lambdas inside them as host functions.
    """
    return (f"-arch=sm_{compute_capability}", "-std=c++17", "-lineinfo", "-default-device")


def program_key(
    program: Program, sources: Mapping[str, str], options: Sequence[str], compiler: str
) -> str:
    """Return a hash of everything that determines the compiled code."""
    digest = hashlib.sha256()
    parts = [compiler, *options, program.source, program.expression]
    for name in sorted(sources):
        parts += [name, sources[name]]
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def template_type(template: str, *arguments: object) -> str:
    """Return the C++ name of a template in namespace batchkron with these arguments.

    They are written as in C++: a bool as true or false, a dtype as its scalar type.
    """
    return f"batchkron::{template}<{', '.join(map(_written, arguments))}>"


def _written(argument: object) -> str:
    if isinstance(argument, bool):
        return "true" if argument else "false"
    return SCALARS[argument] if isinstance(argument, np.dtype) else str(argument)


def device_program(header: str, template: str, *arguments: object) -> Program:
    """Return the kernel of a template in ``csrc/cuda``, whose header is named without ending."""
    return Program(f"cuda/{header}.cuh", template_type(template, *arguments))
