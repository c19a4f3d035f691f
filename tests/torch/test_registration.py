"""The registered operators as torch checks them, compiled graphs, and what calls must not do."""

import subprocess
import sys

import pytest
import torch
from torch.library import opcheck
from torch_checks import assert_same

from batchkron.torch import (
    batched_kron,
    expm_apply,
    gekmm,
    kron_matmul,
    kronecker_sparse,
    logdet,
    solve,
)

OPS = torch.ops.batchkron
LISTS = [torch.tensor([[0, 1], [1, 1]]), torch.tensor([1, 0]), torch.tensor([0, 0])]


def operands(tensor, name, dtype, grad):
    """x, arguments, lists and numbers of an operator, and the shape of its result."""
    if name == "kron_matmul":
        factors = [tensor(2, 3, dtype=dtype, grad=grad), tensor(2, 1, dtype=dtype, grad=grad)]
        return tensor(3, 4, dtype=dtype, grad=grad), factors, [], [], (3, 3)
    if name == "kron_matmul, from the left":
        factors = [tensor(2, 3, dtype=dtype, grad=grad), tensor(2, 1, dtype=dtype, grad=grad)]
        return tensor(3, 5, dtype=dtype, grad=grad), factors, [], [1], (4, 5)
    if name == "kronecker_sparse":
        values = tensor(2, 3, 2, 1, dtype=dtype, grad=grad)
        return tensor(5, 4, dtype=dtype, grad=grad), [values], [], [0], (5, 6)
    pools = [tensor(2, 3, 2, dtype=dtype, grad=grad), tensor(2, 1, 2, dtype=dtype, grad=grad)]
    weights = tensor(2, dtype=dtype, grad=grad)
    return tensor(2, 4, dtype=dtype, grad=grad), [weights, *pools], LISTS, [1], (1, 3)


OPERATORS = ["kron_matmul", "kron_matmul, from the left", "kronecker_sparse", "batched_kron"]


def operator(name, suffix=""):
    return getattr(OPS, name.partition(",")[0] + suffix).default


# opcheck itself asks for the gradient of a tensor that it has made by an operation
inside_opcheck = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not")


@inside_opcheck
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(tensor, name, dtype, grad):
    x, arguments, lists, numbers, shape = operands(tensor, name, dtype, grad)
    opcheck(operator(name), (x, arguments, lists, numbers))
    gradient = tensor(*shape, dtype=dtype, grad=grad)
    needed = [True] * len(arguments)
    given = (x, gradient, needed, arguments, lists, numbers)
    opcheck(operator(name, "_gradients"), given)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_the_operators_themselves(tensor, name):
    """Eager calls of the functions go past the operators that compiled graphs call."""
    x, arguments, lists, numbers, _ = operands(tensor, name, torch.complex128, True)

    def function(x, *arguments):
        return operator(name)(x, list(arguments), lists, numbers)

    assert torch.autograd.gradcheck(function, (x, *arguments))
    assert torch.autograd.gradgradcheck(function, (x, *arguments))


def test_traces_hold_the_operators(tensor):
    """Past them, a trace would hold numbers instead of a call."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x, factor = tensor(3, 2), tensor(2, 4)
    graph = make_fx(lambda x, factor: kron_matmul(x, [factor]))(x, factor)
    assert "batchkron.kron_matmul" in graph.code
    assert_same(graph(2 * x, factor), 2 * x @ factor, 10)


def test_transforms_of_torch_func(tensor):
    x, factor = tensor(3, 2), tensor(2, 4)

    def loss(x, factor):
        return kron_matmul(x, [factor]).square().sum()

    found = torch.func.grad(loss, argnums=(0, 1))(x, factor)
    y = x @ factor
    assert_same(found[0], 2 * y @ factor.T, 100)
    assert_same(found[1], 2 * x.T @ y, 100)
    second = torch.func.grad(lambda x: torch.func.grad(loss)(x, factor).square().sum())(x)
    assert_same(second, 8 * x @ factor @ factor.T @ factor @ factor.T, 1000)


@inside_opcheck
def test_opcheck_of_a_sum_solve(tensor):
    factors = [tensor(n, n).add(5 * torch.eye(n)).requires_grad_() for n in (2, 3)]
    opcheck(OPS.kronecker_sum_solve.default, (tensor(2, 6, grad=True), factors))


@inside_opcheck
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_opcheck_of_an_exponential(tensor, dtype):
    opcheck(OPS.matrix_exp.default, (tensor(2, 3, 3, dtype=dtype, grad=True),))
    opcheck(OPS.matrix_exp.default, (tensor(3, 3, dtype=dtype, grad=True).mT,))
    found = torch.vmap(OPS.matrix_exp.default, 1)(tensor(3, 2, 3, dtype=dtype))
    assert found.shape == (2, 3, 3)


CALLS = {
    "kron_matmul": lambda t: (
        lambda x, a, b: kron_matmul(x, [a, b]),
        (t(3, 6), t(2, 3), t(3, 2)),
    ),
    "gekmm": lambda t: (lambda x, a, b: gekmm([a, b], x), (t(6, 3), t(2, 2), t(3, 3))),
    "kronecker_sparse": lambda t: (
        lambda x, a, b: kronecker_sparse(x, [a, b]),
        (t(3, 6), t(1, 3, 2, 2), t(2, 2, 3, 1)),
    ),
    "batched_kron": lambda t: (
        lambda x, a, w: batched_kron(a, LISTS[0], x, LISTS[1], LISTS[2], 2, weights=w),
        (t(2, 4), t(2, 3, 2), t(2)),
    ),
    "solve": lambda t: (lambda x, a, b: solve([a, b], x), (t(3, 6), t(2, 2), t(3, 3))),
    "solve a sum": lambda t: (
        lambda x, a, b: solve([a, b], x, kind="sum"),
        (t(3, 6), t(2, 2), t(3, 3)),
    ),
    "logdet": lambda t: (lambda a, b: logdet([a @ a.mT, b @ b.mT]), (t(2, 2), t(3, 3))),
    "logdet of a sum": lambda t: (
        lambda a, b: logdet([a @ a.mT, b @ b.mT], kind="sum"),
        (t(2, 2), t(3, 3)),
    ),
    "expm_apply": lambda t: (lambda x, a, b: expm_apply([a, b], x, 0.5), (t(6), t(2, 2), t(3, 3))),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_compiled_without_a_break(tensor, name, backend):
    function, given = CALLS[name](lambda *shape: tensor(*shape, grad=True))
    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    expected = function(*given)
    found = compiled(*given)
    assert_same(found, expected, 10)
    gradients = torch.autograd.grad(found.square().sum(), given)
    others = torch.autograd.grad(expected.square().sum(), given)
    for one, other in zip(gradients, others, strict=True):
        assert_same(one, other, 100)


def test_compiled_for_any_number_of_rows(tensor):
    torch.compiler.reset()
    factors = [tensor(2, 3), tensor(3, 2)]
    compiled = torch.compile(
        lambda x: kron_matmul(x, factors), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for rows in (2, 7, 19):
        x = tensor(rows, 6)
        assert_same(compiled(x), kron_matmul(x, factors), 10)


def test_results_and_inputs_share_no_memory(tensor):
    x, factor = tensor(3, 2), torch.eye(2, dtype=torch.float64)
    y = kron_matmul(x, [factor])
    before = x.clone()
    y.fill_(float("nan"))
    assert torch.equal(x, before)


def test_importing_batchkron_imports_no_torch():
    script = "import sys, batchkron; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_without_torch_the_text_says_what_to_install():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import batchkron\n"
        "try:\n    import batchkron.torch\n"
        "except batchkron.BackendUnavailableError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install 'batchkron[torch]'" in run.stdout, run.stderr
