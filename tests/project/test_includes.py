"""What the folders of csrc include of each other, and of the standard library."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
FILES = sorted(
    str(path.relative_to(CSRC))
    for path in CSRC.rglob("*")
    if path.suffix in (".h", ".hpp", ".cuh", ".cpp")
)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)

# what plans may include of the kernels: constants, function tables, contracts
KERNEL_TABLES = (
    "simd/common/packed_factor.hpp",
    "simd/common/scalar.hpp",
    "simd/common/step.hpp",
    "simd/kernel_table.hpp",
    "simd/compiled_tables.hpp",
    "simd/batch/table.hpp",
    "simd/interpolation/table.hpp",
    "simd/kron/table.hpp",
    "simd/kron_sparse/table.hpp",
    "simd/krylov/table.hpp",
    "simd/segmented/table.hpp",
    "simd/small_products/table.hpp",
    "simd/sweeps/table.hpp",
    "simd/vector_sums/table.hpp",
)
# what a folder may include beside its own files: folders, without those in them, or files
MAY_INCLUDE = {
    "bindings": (
        "engine",
        "engine/batch",
        "engine/fields",
        "engine/interpolation",
        "engine/kron",
        "engine/kron_sparse",
        "engine/krylov",
        "engine/segmented",
        "engine/sweeps",
        "simd/common/scalar.hpp",
    ),
    "bindings/jax": (
        "bindings",
        "engine",
        "engine/batch",
        "engine/kron",
        "engine/kron_sparse",
        "simd/common/scalar.hpp",
    ),
    "c_interface": (
        "engine",
        "engine/batch",
        "engine/kron",
        "engine/kron_sparse",
        "engine/sweeps",
        "include/batchkron",
        "simd/common/scalar.hpp",
    ),
    "include/batchkron": (),
    "engine": KERNEL_TABLES,
    "engine/batch": ("engine", *KERNEL_TABLES),
    "engine/fields": ("engine", *KERNEL_TABLES),
    "engine/interpolation": ("engine", *KERNEL_TABLES),
    "engine/kron": ("engine", *KERNEL_TABLES),
    "engine/kron_sparse": ("engine", *KERNEL_TABLES),
    "engine/krylov": ("engine", *KERNEL_TABLES),
    "engine/segmented": ("engine", *KERNEL_TABLES),
    "engine/sweeps": ("engine", *KERNEL_TABLES),
    "simd": (
        "simd/batch",
        "simd/common",
        "simd/interpolation",
        "simd/kron",
        "simd/kron_sparse",
        "simd/krylov",
        "simd/segmented",
        "simd/small_products",
        "simd/sweeps",
        "simd/vector_sums",
    ),
    "simd/batch": ("simd/common", "simd/segmented"),
    "simd/common": (),
    "simd/interpolation": ("simd/common",),
    "simd/kron": ("simd/common",),
    "simd/kron_sparse": ("simd/common",),
    "simd/krylov": ("simd/common", "krylov"),
    "simd/segmented": ("simd/common",),
    "simd/small_products": ("simd/common",),
    "simd/sweeps": ("simd/common",),
    "simd/vector_sums": ("simd/common",),
    "krylov": ("simd/common/scalar.hpp", "cuda/common/scalar.cuh"),
    "cuda": ("cuda/common", "cuda/krylov/block_sums.cuh"),
    "cuda/batch": ("cuda/common",),
    "cuda/common": (),
    "cuda/exchange": ("cuda/common",),
    "cuda/explicit": ("cuda/common",),
    "cuda/gram": ("cuda/common",),
    "cuda/interpolated": ("cuda/common",),
    "cuda/kron": ("cuda/common",),
    "cuda/kron/fibres": ("cuda/common", "cuda/kron"),
    "cuda/kron/registers": ("cuda/common", "cuda/kron"),
    "cuda/kron_sparse": ("cuda/common",),
    "cuda/kron_sum": ("cuda/common",),
    "cuda/krylov": ("cuda/common", "cuda/kron_sum", "krylov"),
    "cuda/segmented": ("cuda/common",),
}
# An inline function of the standard library that is compiled for a new instruction set could be
# linked into code for an older one; these headers only define types.
TYPES_ALONE = {"cstddef", "cstdint", "type_traits"}
MORE_HEADERS = {
    # intrinsics, all of them inlined by the compiler
    "simd/common/first_lanes.hpp": {"immintrin.h"},
    "simd/common/fused.hpp": {"arm_neon.h", "immintrin.h"},
    "simd/common/repeated.hpp": {"immintrin.h"},
    "simd/kron/copies.hpp": {"immintrin.h"},
    # std::min and the subscript of std::array, always inlined; other spellings of them changed
    # the machine code of all sweep kernels
    "simd/sweeps/block_fetches.hpp": {"algorithm", "array"},
}


def folder_of(file):
    return file.rpartition("/")[0]


def includes_of(file):
    return INCLUDE.findall((CSRC / file).read_text())


def own_includes_of(file):
    return [name for name in includes_of(file) if name in FILES]


def foreign_includes_of(file):
    return {name for name in includes_of(file) if name not in FILES}


def circle(graph):
    """The nodes of a cycle in a mapping from nodes to their successors; [] if there is none."""
    done = set()

    def search(node, path):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in graph[node]:
            if found := search(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next(filter(None, (search(node, []) for node in graph)), [])


def test_there_are_files():
    assert {folder_of(file) for file in FILES} == set(MAY_INCLUDE)


@pytest.mark.parametrize("file", FILES)
def test_folders_include_what_they_may(file):
    for name in own_includes_of(file):
        allowed = (folder_of(file), *MAY_INCLUDE[folder_of(file)])
        assert name in allowed or folder_of(name) in allowed, f"{file} includes {name}"


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith("include/")])
def test_files_are_included_by_their_paths_from_csrc(file):
    text = (CSRC / file).read_text()
    assert set(re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE)) <= set(FILES)


def test_files_include_each_other_in_no_circle():
    assert circle({file: own_includes_of(file) for file in FILES}) == []


def test_folders_include_each_other_in_no_circle():
    graph = {folder: set() for folder in MAY_INCLUDE}
    for file in FILES:
        graph[folder_of(file)] |= {folder_of(name) for name in own_includes_of(file)}
    assert circle({folder: graph[folder] - {folder} for folder in graph}) == []


def test_circles_are_found():
    assert circle({"a": ["b"], "b": ["c", "d"], "c": [], "d": ["b"]}) == ["b", "d", "b"]


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(("simd/", "krylov/"))])
def test_code_of_one_instruction_set_uses_no_library(file):
    assert foreign_includes_of(file) - TYPES_ALONE == MORE_HEADERS.get(file, set())


def test_no_streams_of_the_library():
    """Their locales are one process's: with another C++ library there, as jaxlib's, they crash."""
    streams = {"fstream", "iomanip", "iostream", "istream", "locale", "ostream", "regex", "sstream"}
    assert not [file for file in FILES if foreign_includes_of(file) & streams]


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(("cuda/", "krylov/"))])
def test_device_code_includes_nothing_else(file):
    """NVRTC knows the headers of these folders only."""
    assert not foreign_includes_of(file)
