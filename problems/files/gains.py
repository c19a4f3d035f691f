"""The gains of a problem in its file: named kinds with their axes and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import texts_of

from ..statement.axis import Axis
from ..statement.gains import MaxwellianGain
from ..statement.number_checks import finite_number

__all__ = ["decode_gains", "encode_gains"]

_PATH = "gains/maxwellian"
_MAX_GAINS = 16  # of one problem; each is computed from the whole state


def encode_gains(gains: Sequence[MaxwellianGain]) -> dict[str, Value]:
    """Return the dataset of gains, of which there may be 16; none without gains."""
    if len(gains) > _MAX_GAINS:
        raise ValueError(f"the problem has {len(gains)} gains; a file holds at most {_MAX_GAINS}")
    if not gains:
        return {}
    rows = [
        {"position": gain.position.name, "velocity": gain.velocity.name, "nu": gain.nu}
        for gain in gains
    ]
    return {_PATH: tuple(strict_json.dumps(row) for row in rows)}


def decode_gains(document: Document, axes: Sequence[Axis]) -> tuple[MaxwellianGain, ...]:
    """Return the gains of a document."""
    if _PATH not in document.datasets:
        return ()
    texts = texts_of(document, _PATH)
    if len(texts) > _MAX_GAINS:
        raise ProblemFileError(
            f"dataset '{_PATH}' has {len(texts)} gains; expected at most {_MAX_GAINS}"
        )
    names = {axis.name: axis for axis in axes}
    found = []
    for number, text in enumerate(texts):
        with refusing(f"dataset '{_PATH}'[{number}]"):
            row = strict_json.loads(text)
            if not isinstance(row, dict) or set(row) != {"position", "velocity", "nu"}:
                raise ValueError("it is no object of position, velocity and nu")
            for key in ("position", "velocity"):
                if row[key] not in names:
                    raise ValueError(f"{key} is {row[key]!r}; expected one of {', '.join(names)}")
            nu = finite_number("nu", row["nu"])
            found.append(MaxwellianGain(names[row["position"]], names[row["velocity"]], nu))
    return tuple(found)
