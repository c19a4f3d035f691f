"""kron_matmul and gekmm of torch with `Identity` among the factors."""

import numpy as np
import pytest
import torch
from dense_oracle import dense_kron, random_array

import batchkron as bk
from batchkron.torch import gekmm, kron_matmul

PATTERNS = [[3, (2, 3), 2], [(2, 3), 2], [2, (2, 3)], [(2, 3), 2, (3, 2)], [2, (2, 2), 1, (1, 3)]]


def factors_of(rng, pattern, dtype):
    given = [one if isinstance(one, int) else random_array(rng, one, dtype) for one in pattern]
    dense = torch.tensor(dense_kron(*[np.eye(o) if isinstance(o, int) else o for o in given]))
    matrices = [torch.tensor(one, requires_grad=True) for one in given if not isinstance(one, int)]

    def with_marks(matrices):
        left = iter(matrices)
        return [bk.Identity(one) if isinstance(one, int) else next(left) for one in pattern]

    return matrices, with_marks, dense


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_values_and_gradients(rng, dtype, pattern):
    matrices, with_marks, dense = factors_of(rng, pattern, dtype)
    for lead in ((), (2,), (2, 1)):
        x = torch.tensor(random_array(rng, (*lead, dense.shape[0]), dtype), requires_grad=True)
        torch.testing.assert_close(kron_matmul(x, with_marks(matrices)), x @ dense.to(x.dtype))
    arguments = x, *matrices
    assert torch.autograd.gradcheck(lambda x, *A: kron_matmul(x, with_marks(A)), arguments)
    x = torch.tensor(random_array(rng, (dense.shape[1], 2), dtype), requires_grad=True)
    expected = dense.to(x.dtype) @ x
    torch.testing.assert_close(gekmm(with_marks(matrices), x), expected)
    torch.testing.assert_close(gekmm(with_marks(matrices), x[:, 0]), expected[:, 0])
    assert torch.autograd.gradcheck(lambda x, *A: gekmm(with_marks(A), x), (x, *matrices))


def test_identities_alone():
    x = torch.arange(12.0).reshape(2, 6)
    y = kron_matmul(x, [bk.Identity(2), bk.Identity(3)])
    torch.testing.assert_close(y, x)
    assert y.data_ptr() != x.data_ptr()


def test_maps_and_refusals(rng):
    A = torch.tensor(rng.random((2, 2)))
    x = torch.tensor(rng.random((3, 12)))
    factors = [bk.Identity(3), A, bk.Identity(2)]
    expected = kron_matmul(x, factors)
    torch.testing.assert_close(torch.vmap(lambda v: kron_matmul(v, factors))(x), expected)
    assert kron_matmul(x[:0], factors).shape == (0, 12)
    assert kron_matmul(x.to("meta"), [bk.Identity(6), A.to("meta")]).shape == x.shape
    with pytest.raises(ValueError, match="expected 12 columns"):
        kron_matmul(x[:, :11], factors)
    with pytest.raises(TypeError, match=r"factors\[1\] has dtype torch.float32"):
        kron_matmul(x, [bk.Identity(3), A.float(), bk.Identity(2)])
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(2,\)"):
        kron_matmul(x, [bk.Identity(3), A[0], bk.Identity(2)])


def test_traced(rng):
    A, x = torch.tensor(rng.random((2, 2))), torch.tensor(rng.random((3, 12)))

    def product(x, A):
        return kron_matmul(x, [bk.Identity(3), A, bk.Identity(2)])

    graph = torch.fx.experimental.proxy_tensor.make_fx(product)(x, A)
    torch.testing.assert_close(graph(x + 1, 2 * A), product(x + 1, 2 * A))


def test_tensors_in_functions_of_arrays(rng):
    A, x = torch.tensor(rng.random((2, 2))), torch.tensor(rng.random(12))
    factors = [bk.Identity(3), A, bk.Identity(2)]
    expected = (np.kron(np.kron(np.eye(3), A.numpy()), np.eye(2)) @ x.numpy()).tolist()
    found = bk.gekmm(factors, x)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, expected)
    assert isinstance(bk.kron(factors), torch.Tensor)
    np.testing.assert_allclose(bk.KroneckerProduct(factors) @ x, expected)
