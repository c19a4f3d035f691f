"""Where a checkpoint and the one before it are stored, and which files they would replace."""

from __future__ import annotations

import os
from pathlib import Path

from batchkron.errors import ProblemFileError
from batchkron.storage.guarded_reader import SIGNATURE, open_regular
from batchkron.storage.reader import identify

CHECKPOINT = "batchkron-checkpoint"
"""The format's name, the attribute "format" of a checkpoint file."""

_DAMAGED = "an HDF5 file, but no sound checkpoint"


def previous_path(path: str | os.PathLike[str]) -> Path:
    """Return where the checkpoint before the last one is kept: "PATH.previous".

    Parameters
    ----------
    path : path
        Where the last one is; symbolic links are followed.

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
        A sentence about the file, which is `path` itself or "PATH.previous". None if each of the
        two is missing, empty or a checkpoint. None also if one is a checkpoint and the other a
        damaged HDF5 file, for that one is taken for a damaged checkpoint.

    Raises
    ------
    ChildProcessError
        If the process that reads files of unknown origin does not start.
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
    """Describe the file at a path; return None if it is missing or empty."""
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
        return None  # the file is missing; writing the checkpoint will report any other error
    except ProblemFileError:
        return _DAMAGED if place.is_file() else "not a regular file"
    return found if found == CHECKPOINT else f"a file of format '{found}'"
