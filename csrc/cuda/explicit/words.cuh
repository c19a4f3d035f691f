// What both kernels of explicit Kronecker products share. They write the result in words of 16
// bytes wherever its address allows, and the elements before the first word and after the last one
// singly.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

using Bits = unsigned long long;

// Sizes of a matrix, and its strides in elements, which may be any.
struct MatrixLayout {
  Index rows, columns, row, column;
};

template <class T>
struct Matrix : MatrixLayout {
  const T* data;

  __device__ T at(Index i, Index j) const { return data[i * row + j * column]; }
};

// A word: elements that a thread stores with one instruction.
template <class T, int count, int bytes>
struct alignas(bytes) OutWord {
  T values[count];
};

// Stores a word. If `streaming` a word of 16 bytes is stored with the hint that nobody reads it
// soon (__stcs). A host compiler, with which tests run these kernels, has no such hint.
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

// Writes the `before` elements of out before the first whole word, and those after the last one;
// `total` is the number of all elements. Each thread of a thread block writes at most one.
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
