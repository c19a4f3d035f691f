"""The context: what it puts in place, and that all is as before when the last one is left."""

import subprocess
import sys
import threading

import pytest
import torch
from linear_operator.operators import KroneckerProductLinearOperator

from batchkron.linear_operator import accelerate, products

METHODS = ("_matmul", "_t_matmul")
THEIRS = {name: KroneckerProductLinearOperator.__dict__[name] for name in METHODS}


def is_theirs():
    return {KroneckerProductLinearOperator.__dict__[name] is THEIRS[name] for name in METHODS}


@pytest.fixture(autouse=True)
def nothing_stays():
    assert is_theirs() == {True}
    yield
    assert is_theirs() == {True}


def test_nested():
    with accelerate():
        with accelerate():
            assert is_theirs() == {False}
        assert is_theirs() == {False}


def test_left_in_another_order():
    first, second = accelerate(), accelerate()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_theirs() == {False}
    second.__exit__(None, None, None)


def test_left_by_an_exception():
    with pytest.raises(KeyError), accelerate():
        raise KeyError


def test_a_decorator():
    @accelerate()
    def inside():
        return is_theirs()

    assert inside() == {False}
    assert is_theirs() == {True}
    assert inside() == {False}


def test_threads(tensor):
    """Threads that enter and leave at different times; all see right products."""
    product = KroneckerProductLinearOperator(tensor(3, 3), tensor(4, 4))
    x = tensor(12, 2)
    expected = product @ x
    seen, started = [], threading.Barrier(4)

    def work(rounds):
        started.wait()
        for _ in range(rounds):
            with accelerate():
                seen.append(is_theirs() == {False})
                seen.append(torch.allclose(product @ x, expected))
            seen.append(torch.allclose(product @ x, expected))

    threads = [threading.Thread(target=work, args=(rounds,)) for rounds in (5, 10, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 3 * 75
    assert all(seen)


def test_gradients_after_the_context(tensor):
    factors = [tensor(3, 3, grad=True), tensor(2, 2, grad=True)]
    x = tensor(6, 2)
    with accelerate():
        loss = (KroneckerProductLinearOperator(*factors) @ x).square().sum()
    found = torch.autograd.grad(loss, factors)
    y = torch.kron(*factors) @ x
    expected = torch.autograd.grad(y.square().sum(), factors)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


def test_the_methods_in_place_are_those_of_the_kernels():
    with accelerate():
        assert KroneckerProductLinearOperator._matmul is products.matmul
        assert KroneckerProductLinearOperator._t_matmul is products.t_matmul


def test_without_linear_operator_the_text_says_what_to_install():
    script = (
        "import sys; sys.modules['linear_operator'] = None\n"
        "import batchkron\n"
        "try:\n    import batchkron.linear_operator\n"
        "except batchkron.BackendUnavailableError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install 'batchkron[gpytorch]'" in run.stdout, run.stderr


def test_it_tells_what_was_replaced():
    place = "linear_operator.operators.kronecker_product_linear_operator"
    products_only = tuple(f"{place}.KroneckerProductLinearOperator.{name}" for name in METHODS)
    with accelerate(interpolation=False) as replaced:
        assert replaced == products_only
    with accelerate() as replaced:
        assert replaced[:2] == products_only
        assert all("." in name for name in replaced)


def test_a_statement_without_effect_warns():
    with pytest.warns(
        UserWarning, match=r"was called and not entered.*with accelerate\(\):"
    ) as one:
        accelerate()
    assert one[0].filename == __file__
    assert is_theirs() == {True}


def test_a_model_is_no_argument():
    with pytest.raises(
        TypeError, match=r"accelerate takes no Linear: it changes no model.*with acc"
    ):
        accelerate(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"accelerate takes no function.*'@accelerate\(\)'"):

        @accelerate
        def train():
            pass


def test_a_decorated_function_runs_within():
    @accelerate()
    def seen(depth):
        assert is_theirs() == {False}
        return seen(depth - 1) if depth else depth

    assert seen(2) == 0
    assert is_theirs() == {True}
