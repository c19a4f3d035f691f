"""Times of batchkron next to its peers' and to what the machine can do: see README.md.

``python -m`` puts the root of the source first on the path, where the folder ``batchkron`` has no
compiled module. Here the root goes behind the installed packages: the installed one is timed.
"""

import sys
from pathlib import Path

_root = Path(__file__).resolve().parents[1]
if sys.path and Path(sys.path[0]).resolve() == _root:
    sys.path.append(sys.path.pop(0))
