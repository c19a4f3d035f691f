"""PDEs, their discretizations on sparse grids, batch lists, a gallery, and problem files.

Names are imported on first use.
"""

from batchkron.lazy import lazy_names

TYPE_CHECKING = False  # type checkers take it for True; nothing has to be imported to say so
if TYPE_CHECKING:
    from .public_names import *  # noqa: F403

__getattr__, __dir__ = lazy_names("batchkron.problems", {"gallery": None, "time": None})
