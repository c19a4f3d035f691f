"""Where C, C++ and Fortran find batchkron's header and library: ``python -m batchkron.config``."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path


def _package() -> Path:
    """Return the folder that was installed: that of the compiled core."""
    core = find_spec("batchkron._core")
    folder = (
        Path(__file__).parent if core is None or core.origin is None else Path(core.origin).parent
    )
    if not (folder / "include" / "batchkron" / "batchkron.h").exists():
        raise RuntimeError(
            f"there is no include/batchkron/batchkron.h in {folder}: install batchkron with "
            "pip, or build it with CMake"
        )
    return folder


def include_folder() -> Path:
    """Return the folder with ``batchkron/batchkron.h``."""
    return _package() / "include"


def library_folder() -> Path:
    """Return the folder with ``libbatchkron.so``."""
    return _package() / "lib"


def cmake_folder() -> Path:
    """Return the folder with ``batchkronConfig.cmake``, for ``-Dbatchkron_DIR``."""
    return library_folder() / "cmake" / "batchkron"


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m batchkron.config", description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--include", action="store_true", help="the option for a compiler")
    wanted.add_argument("--libs", action="store_true", help="the options for a linker")
    wanted.add_argument("--cmake-dir", action="store_true", help="the value of batchkron_DIR")
    given = parser.parse_args()
    if given.include:
        print(f"-I{include_folder()}")
    elif given.libs:
        print(f"-L{library_folder()} -lbatchkron -Wl,-rpath,{library_folder()}")
    else:
        print(cmake_folder())


if __name__ == "__main__":
    main()
