"""As much of torch as `benchmarks.gpu.peers.torch_sparse` takes, on NumPy's arrays."""

from types import SimpleNamespace

import numpy as np
import scipy.sparse

int32 = np.int32


class Tensor:
    """A tensor in main memory; sparse ones hold a matrix of SciPy."""

    device = None

    def __init__(self, array):
        self.array = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def view(self, *shape):
        found = self.array.view()
        found.shape = tuple(int(n) for n in np.reshape(self.array, shape).shape)  # never copies
        return Tensor(found)

    def reshape(self, *shape):
        return Tensor(self.array.reshape(shape))

    def transpose(self, one, other):
        return Tensor(self.array.swapaxes(one, other))

    def permute(self, *axes):
        return Tensor(self.array.transpose(axes))

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))

    def expand(self, *shape):
        return Tensor(np.broadcast_to(self.array, shape))

    def __getitem__(self, index):
        return Tensor(self.array[_arrays(index)])

    def __setitem__(self, index, value):
        self.array[_arrays(index)] = value.array

    def __add__(self, other):
        return Tensor(self.array + getattr(other, "array", other))

    def __mul__(self, other):
        return Tensor(self.array * other)


def _arrays(index):
    if isinstance(index, tuple):
        return tuple(getattr(one, "array", one) for one in index)
    return getattr(index, "array", index)


def einsum(formula, *tensors):
    return Tensor(np.einsum(formula, *(one.array for one in tensors)))


def bmm(a, b):
    assert a.array.ndim == b.array.ndim == 3
    return Tensor(a.array @ b.array)


def matmul(a, b):
    return Tensor(np.asarray(a.array @ b.array))


def arange(end, device, dtype=np.int64):
    return Tensor(np.arange(end, dtype=dtype))


def zeros(shape, dtype, device):
    return Tensor(np.zeros(shape, dtype))


def sparse_bsr_tensor(starts, columns, values, size):
    matrix = values.array, columns.array, starts.array
    return Tensor(scipy.sparse.bsr_array(matrix, shape=size))


def sparse_csr_tensor(starts, columns, values, size):
    matrix = values.array, columns.array, starts.array
    return Tensor(scipy.sparse.csr_array(matrix, shape=size))


def linear(x, weight):
    return Tensor(np.asarray((weight.array @ x.array.T).T))


nn = SimpleNamespace(functional=SimpleNamespace(linear=linear))
