"""Packages whose public names are imported on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, packages: Mapping[str, str | None] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that loads its names on first use.

    ``package``: the package. Its module ``public_names`` has the names, which are listed in its
      ``__all__``; the first use of one of them imports this module and all that it imports.
    ``packages`` (mapping of str to (str or None)): packages in this one that load one by one, each
      with the package of another project without which it is of no use; ``dir`` shows it where that
      one is installed.

    Result: for the package's ``__init__``, see PEP 562.
    """
    inner = packages or {}
    names = f"{package}.public_names"

    def get(name: str) -> Any:
        if name in inner:
            return importlib.import_module(f"{package}.{name}")
        if name == "__all__" or not name.startswith("_"):
            loaded = vars(importlib.import_module(names))
            public = loaded.get("__all__", ())  # empty while the module itself is imported
            vars(sys.modules[package]).update({one: loaded[one] for one in public if one in loaded})
            if name in public or name == "__all__":
                return loaded[name]
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
        )

    def directory() -> list[str]:
        usable = [name for name, needed in inner.items() if needed is None or find_spec(needed)]
        special = [name for name in vars(sys.modules[package]) if name.startswith("__")]
        return sorted({*get("__all__"), *usable, *special})

    return get, directory
