// The Kronecker product of two matrices, written out.
#pragma once

#include "scalar.cuh"

namespace batchkron {

// A matrix of any strides, in elements.
template <class T>
struct Matrix {
  const T* data;
  Index rows, columns, row, column;

  __device__ T at(Index i, Index j) const { return data[i * row + j * column]; }
};

template <class T>
struct ExplicitKronArguments {
  Matrix<T> a, b;
  T* out;
};

// out[i * b.rows + k, j * b.columns + l] = a[i, j] b[k, l]; out is contiguous. A thread walks along
// a row of out in equal steps: j and l follow without a division.
template <class T>
__global__ void explicit_kron(const ExplicitKronArguments<T> arguments) {
  const Matrix<T> a = arguments.a, b = arguments.b;
  const Index rows = a.rows * b.rows, columns = a.columns * b.columns;
  const Index first = threadIdx.x + Index(blockDim.x) * blockIdx.y;
  const Index step = Index(blockDim.x) * gridDim.y;
  const Index first_j = first / b.columns, first_l = first % b.columns;
  const Index step_j = step / b.columns, step_l = step % b.columns;
  for (Index row = Index(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += Index(gridDim.x) * blockDim.y) {
    const Index i = row / b.rows, k = row % b.rows;
    T* const target = arguments.out + row * columns;
    for (Index column = first, j = first_j, l = first_l; column < columns; column += step) {
      target[column] = multiply(a.at(i, j), b.at(k, l));
      j += step_j;
      l += step_l;
      if (l >= b.columns) {
        l -= b.columns;
        ++j;
      }
    }
  }
}

}  // namespace batchkron
