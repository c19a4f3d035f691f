"""Batches of Kronecker products of small matrices: multiply, solve, step in time.

Products     gekmm, gemkm, kron, batched_gemm, batched_kron, kronecker_sparse_multiply
Operators    KroneckerProduct, KroneckerSum, BatchedKron, SparseGridOperator, KroneckerSparse,
             InterpolatedKronecker, Diagonal, Identity; sums, products and multiples of them
Solvers      batchkron.solvers: cg, gmres, ..., evolve (a run in time), preconditioners, steppers
Problems     batchkron.problems: PDE, LinearProblem, gallery, load_problem, save_problem
Frameworks   batchkron.torch, batchkron.jax, batchkron.linear_operator (for GPyTorch)
Machines     batchkron.distributed: distribute, over processes of MPI

Begin with docs/tutorials/quickstart.md, in the folder of the source; docs/README.md lists all
pages, and docs/reference/python-api.md these modules. Each name has a help page with an example,
such as help(batchkron.gekmm). The command is "batchkron --help".

Names are imported on first use.
"""

from importlib.util import find_spec

from batchkron.lazy import lazy_names

if find_spec("batchkron._core") is None:
    raise ImportError(
        f"{__path__[0]} has no compiled core: these are batchkron's sources, which Python found in "
        "place of the installed package. Start it in another folder, or as python -P"
    )
TYPE_CHECKING = False  # type checkers take it for True; nothing has to be imported to say so
if TYPE_CHECKING:
    from batchkron import distributed as distributed
    from batchkron import jax as jax
    from batchkron import kronecker_sparse as kronecker_sparse
    from batchkron import linear_operator as linear_operator
    from batchkron import problems as problems
    from batchkron import solvers as solvers
    from batchkron import storage as storage
    from batchkron import torch as torch
    from batchkron.public_names import *  # noqa: F403

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    "batchkron",
    {
        "distributed": None,
        "jax": "jax",
        "kronecker_sparse": None,
        "linear_operator": "linear_operator",
        "problems": None,
        "solvers": None,
        "storage": None,
        "torch": "torch",
    },
)
