"""Where checkpoints lie, and which files they would replace there."""

from __future__ import annotations

import os
from pathlib import Path

from batchkron.errors import ProblemFileError
from batchkron.storage.guarded_reader import SIGNATURE, open_regular
from batchkron.storage.reader import identify

CHECKPOINT = "batchkron-checkpoint"
"""The format's name."""

_DAMAGED = "an HDF5 file, but no sound checkpoint"


def previous_path(path: str | os.PathLike[str]) -> Path:
    """Return where the checkpoint before the last one is kept: "PATH.previous".

    Parameters
    ----------
    path : path

    Returns
    -------
    Path
    """
    target = Path(os.path.realpath(path))
    return target.with_name(f"{target.name}.previous")


def checkpoint_obstacle(path: str | os.PathLike[str]) -> str | None:
    """Say which file checkpoints written to a path would destroy.

    Parameters
    ----------
    path : path
        Where the checkpoints are to go.

    Returns
    -------
    str or None
        A sentence about the file: `path` itself or "PATH.previous". None if both are missing,
        empty or checkpoints; or if one is a checkpoint and the other begins as an HDF5 file but is
        damaged, for then it was one as well.

    Raises
    ------
    ChildProcessError
        If the process that looks into the files does not start.
    """
    found = {place: _found_at(place) for place in (Path(path), previous_path(path))}
    for place, what in found.items():
        if what in (None, CHECKPOINT):
            continue
        if what == _DAMAGED and CHECKPOINT in found.values():
            continue
        return (
            f"{place} exists and is {what}, which checkpoints would replace; move it away or "
            f"choose another name for the checkpoints"
        )
    return None


def _found_at(place: Path) -> str | None:
    """Name what is at a path, None where nothing would be lost."""
    try:
        with open_regular(str(place)) as stream:
            head = stream.read(len(SIGNATURE))
        if not head:
            return None
        if head != SIGNATURE:
            return "no HDF5 file"
        found = identify(place)
    except PermissionError:
        return "not readable"
    except ChildProcessError:
        raise
    except OSError:
        return None  # missing is right; anything else shows itself, explained, in writing
    except ProblemFileError:
        return _DAMAGED if place.is_file() else "not a regular file"
    return found if found == CHECKPOINT else f"a file of format '{found}'"
