"""The three formats of batchkron's files, their versions, and the function that reads each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from batchkron.storage.document import Attribute

LOADERS: Mapping[str, str] = MappingProxyType(
    {
        "batchkron-problem": "batchkron.problems.load_problem",
        "batchkron-result": "batchkron.storage.load_result",
        "batchkron-checkpoint": "batchkron.storage.load_checkpoint",
    }
)
"""The format names, each with the function that reads such files."""

FOREIGN_HINT = "Files of ASGarD are loaded with batchkron.problems.load_asgard"
"""Last sentence of the error for a file that another program may have written."""

FIRST_VERSION = 1
"""The version of files without what a later one added: earlier batchkrons read them."""

VERSION_WITH_GRIDS = 2
"""The version of results and checkpoints with a grid that has followed the solution."""

VERSION_WITH_MEMORY = 3
"""The version of checkpoints with what a method needs of earlier steps."""

VERSION_WITH_RULES = 2
"""The version of problems with a rule by which their grid follows the solution."""

VERSION_WITH_LISTS = 3
"""The version of problems that are batch lists, as other programs may write them."""

VERSION_WITH_DEGREES = 4
"""The version of problems whose axes have different polynomial degrees."""

NEWEST_VERSIONS: Mapping[str, int] = MappingProxyType(
    {
        "batchkron-problem": VERSION_WITH_DEGREES,
        "batchkron-result": VERSION_WITH_GRIDS,
        "batchkron-checkpoint": VERSION_WITH_MEMORY,
    }
)
"""The newest version of each format; this package reads it and those before."""


def may_lack_hash(attributes: Mapping[str, Attribute]) -> bool:
    """Return whether a file need not have the hash of its content: lists of other programs.

    ``attributes``: attributes of the root group, in which `find_format_fault` finds no fault.
    """
    is_problem = attributes["format"] == "batchkron-problem"
    return is_problem and attributes["format_version"] == VERSION_WITH_LISTS


def find_format_fault(attributes: Mapping[str, Attribute], expected: str | None) -> str | None:
    """Say why the root attributes are not those of a file of the expected format.

    ``attributes``: attributes of the root group.
    ``expected``: the format's name; None accepts every key of `LOADERS`.

    Result: None if nothing is wrong.
    """
    found = attributes.get("format")
    if not isinstance(found, str) or found not in LOADERS:
        return (
            f"attribute 'format' is {found!r}; expected "
            f"{expected if expected else 'one of ' + ', '.join(LOADERS)}: "
            f"this is not a file of batchkron. {FOREIGN_HINT}"
        )
    if expected is not None and found != expected:
        return (
            f"attribute 'format' is '{found}', expected '{expected}'; "
            f"load this file with {LOADERS[found]}"
        )
    version = attributes.get("format_version")
    if not isinstance(version, int) or version < 1:
        return f"attribute 'format_version' is {version!r}; expected an integer from 1"
    if version > NEWEST_VERSIONS[found]:
        return (
            f"attribute 'format_version' is {version}, newer than version "
            f"{NEWEST_VERSIONS[found]} that "
            f"this batchkron reads; update batchkron"
        )
    return None
