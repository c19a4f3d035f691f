// What both kernels of the explicit product share: matrices, words of the result, and its ends.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

using Bits = unsigned long long;

// Sizes of a matrix, and its strides in elements, any ones.
struct MatrixLayout {
  Index rows, columns, row, column;
};

template <class T>
struct Matrix : MatrixLayout {
  const T* data;

  __device__ T at(Index i, Index j) const { return data[i * row + j * column]; }
};

// Elements that a thread stores at once.
template <class T, int count, int bytes>
struct alignas(bytes) OutWord {
  T values[count];
};

// Stores a word, with the hint that it is not read again soon where it is one of 16 bytes; a host
// compiler, which knows no hints, stores it plainly.
template <bool streaming, class Word>
__device__ void put(Word* target, const Word& word) {
#ifdef __CUDA_ARCH__
  if constexpr (streaming && alignof(Word) == 16) {
    __stcs(reinterpret_cast<uint4*>(target), *reinterpret_cast<const uint4*>(&word));
    return;
  }
#endif
  *target = word;
}

// The elements of out before the first whole word and after the last one.
template <int elements, class T>
__device__ void write_ends(const Matrix<T>& a, const Matrix<T>& b, T* out, Index total,
                           Index before) {
  const Index head = before < total ? before : total, tail = (total - head) % elements;
  if (threadIdx.x >= head + tail) return;
  const Index place = threadIdx.x < head ? threadIdx.x : total - 1 - (threadIdx.x - head);
  const Index columns = a.columns * b.columns, row = place / columns, column = place % columns;
  out[place] = multiply(a.at(row / b.rows, column / b.columns),
                        b.at(row % b.rows, column % b.columns));
}

}  // namespace batchkron
