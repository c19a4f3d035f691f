"""Which products of tensors go by their addresses; a stand-in returns the keys."""

import sys
from types import SimpleNamespace

import pytest
import torch

from batchkron.torch import products

INTERFACE = "batchkron.backends.cuda.interface.device"


@pytest.fixture
def key_of(monkeypatch):
    """Returns the key of a product, or None if it needs arrays."""
    stand_in = SimpleNamespace(addressed_multiply=lambda key, operands, left, device: key)
    monkeypatch.setitem(sys.modules, INTERFACE, stand_in)

    def key(x, *factors, left=False):
        return products._on_device(factors, x, x.shape, left)

    return key


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_keys_tell_products_apart(key_of, dtype):
    x, factors = torch.ones(2, 4, dtype=dtype), [torch.ones(2, 2, dtype=dtype) for _ in range(3)]
    flat, wide = torch.ones(4, 4, dtype=dtype)[:2], torch.ones(2, 4, dtype=dtype)[:, :2]
    keys = [
        key_of(x, *factors[:2]),
        key_of(x, *factors[:2], left=True),
        key_of(x, factors[0].mT, factors[1]),
        key_of(x.view(1, 2, 4), *factors[:2]),
        key_of(x, factors[0], wide),
        key_of(flat, factors[0].view(1, 4), factors[1]),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key_of(torch.zeros_like(x), *factors[1:]) == keys[0]


@pytest.mark.parametrize("place", [1, 2])
def test_several_dtypes_need_arrays(key_of, place):
    given = [torch.ones(2, 2, dtype=torch.complex64) for _ in range(3)]
    assert key_of(*given) is not None
    given[place] = given[place].to(torch.complex128)
    assert key_of(*given) is None


@pytest.mark.parametrize("lazy", [lambda z: z.conj().imag, lambda z: z.conj(), lambda z: z.mH])
def test_memory_has_the_values(lazy):
    z = torch.tensor([[1.0 + 2.0j, 3.0], [4.0j, 5.0 - 1.0j]])
    found = products.computed(lazy(z))
    assert not found.is_conj()
    assert not found.is_neg()
    assert torch.equal(found, lazy(z))
    plain = z.real
    assert products.computed(plain) is plain
