// What the kernels of explicit Kronecker products share.
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

constexpr int kLine = 128;  // bytes of a line of the second-level cache

// Division by a number whose reciprocal is known: a multiply and a shift for 32-bit numbers.
template <class Size>
struct Division {
  Size quotient, rest;
};

__device__ inline Division<unsigned> divide(unsigned value, unsigned by, unsigned reciprocal) {
  unsigned quotient = unsigned(Bits(value) * reciprocal >> 32);
  unsigned rest = value - quotient * by;  // the quotient is right, or too small by one
  if (rest >= by) {
    ++quotient;
    rest -= by;
  }
  return {quotient, rest};
}
__device__ inline Division<Index> divide(Index value, Index by, unsigned) {
  return {value / by, value % by};
}

// A word: elements that a thread stores with one instruction.
template <class T, int count, int bytes>
struct alignas(bytes) OutWord {
  T values[count];
};

// Unsigned integers of as many bytes as a word, which the hint below takes.
template <int bytes>
struct WordBits;
template <>
struct WordBits<4> {
  using Type = unsigned;
};
template <>
struct WordBits<8> {
  using Type = uint2;
};
template <>
struct WordBits<16> {
  using Type = uint4;
};

// Stores a word. If `streaming`, a word that is aligned to its size is stored with the hint that
// nobody reads it soon (__stcs).
template <bool streaming, class Word>
__device__ void put(Word* target, const Word& word) {
  if constexpr (streaming && alignof(Word) == sizeof(Word)) {
    using Type = typename WordBits<sizeof(Word)>::Type;
    __stcs(reinterpret_cast<Type*>(target), *reinterpret_cast<const Type*>(&word));
  } else {
    *target = word;
  }
}

// Writes the `before` elements of out before the first whole word, and those after the last one;
// `total` is the number of all elements. One thread block of `threads` threads writes them.
template <int elements, int threads, class T>
__device__ void write_ends(const Matrix<T>& a, const Matrix<T>& b, T* out, Index total,
                           Index before) {
  const Index head = before < total ? before : total, tail = (total - head) % elements;
  UNROLLED_BY(1) for (Index end = threadIdx.x; end < head + tail; end += threads) {
    const Index place = end < head ? end : total - 1 - (end - head);
    const Index columns = a.columns * b.columns, row = place / columns, column = place % columns;
    out[place] = multiply(a.at(row / b.rows, column / b.columns),
                          b.at(row % b.rows, column % b.columns));
  }
}

}  // namespace batchkron
