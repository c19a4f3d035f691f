"""Checks of the files that a command will write, before any work starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from batchkron.cli.failure import CommandError

_MAX_NAME_BYTES = 255  # longest file name in bytes, on all usual file systems

__all__ = ["check_name", "check_outputs"]


def check_name(what: str, path: Path) -> None:
    """Check that the last part of a path is a possible file name.

    ``what`` describes the file in the error text ("the result", …).

    Raises `CommandError` if the name is empty, "-" or too long.
    """
    if path.name == "-":
        raise CommandError(
            f"{what} is to go to {path}, which stands for standard output in other programs; files "
            "of batchkron are not written there. Give a file name."
        )
    if not path.name:
        raise CommandError(f"{what} is to go to {path}, which is a folder; give a file name.")
    if len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
        raise CommandError(
            f"{what} is to go to a file whose name has more than {_MAX_NAME_BYTES} bytes, "
            f"{path.name[:40]}…; give a shorter one."
        )


def check_outputs(outputs: Mapping[str, Path], inputs: Mapping[str, Path], *, force: bool) -> None:
    """Check that outputs can be written, and do not overwrite inputs, each other or existing files.

    Outputs and inputs have descriptions ("the result", …). Inputs are never overwritten, not even
    with ``force``, which lets existing files be replaced.

    Raises `CommandError` if an output is an input or another output, exists (without ``force``),
    its folder cannot be written, or its name is not a possible file name.
    """
    taken = dict(inputs)
    for what, path in outputs.items():
        check_name(what, path)
        for other, other_path in taken.items():
            if _same(path, other_path):
                raise CommandError(f"{what} would go to {path}, which is {other}; choose another.")
        taken[what] = path
    for what, path in outputs.items():
        _check_place(what, path)
        if path.exists() and not force:
            raise CommandError(f"{path} exists, where {what} is to go; pass --force to replace it.")


def _same(first: Path, second: Path) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    return first.exists() and second.exists() and first.samefile(second)


def _check_place(what: str, path: Path) -> None:
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise CommandError(
            f"{what} is to go to {path}, but the folder {folder} does not exist; create it first."
        )
    if path.is_dir():
        raise CommandError(f"{what} is to go to {path}, which is a folder; give a file name.")
    if path.exists() and not path.is_file():
        raise CommandError(
            f"{what} is to go to {path}, which is not a regular file; choose another."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(
            f"{what} is to go to {path}, but files cannot be written to the folder {folder}; "
            f"choose another."
        )
