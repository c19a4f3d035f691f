// The Kronecker product of two matrices as a dense matrix, written in segments. A segment is a row
// of b times an element of a.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/explicit/words.cuh"

namespace batchkron {

// Addresses come first, because a launch fills in the first fields only.
template <class T>
struct ExplicitSegmentsArguments {
  const T *a_data, *b_data;
  T* out;
  MatrixLayout a, b;
  Index chunks;           // thread blocks that share a row of b
  Index entries, groups;  // elements of a for each thread block, and thread blocks for all elements
};

// a times b[i], ..., b[i + elements - 1] with i = elements - 1 - before. Registers have no index at
// run time, so the values are shifted by the bits of `before`.
template <int elements, int bytes, class T>
__device__ OutWord<T, elements, bytes> shifted_product(T a, const T (&b)[2 * elements - 1],
                                                       int before) {
  T values[2 * elements - 1];
#pragma unroll
  for (int t = 0; t < 2 * elements - 1; ++t) values[t] = b[t];
#pragma unroll
  for (int shift = elements / 2; shift > 0; shift /= 2) {
#pragma unroll
    for (int t = 0; t < elements + shift - 1; ++t)
      if (!(before & shift)) values[t] = values[t + shift];
  }
  OutWord<T, elements, bytes> result;
#pragma unroll
  for (int t = 0; t < elements; ++t) result.values[t] = multiply(a, values[t]);
  return result;
}

// Writes a word that begins at column `first` of the segment of element `entry` of a and ends in
// the next segment; after the last segment there is nothing to write.
template <int elements, class T>
__device__ void write_across(const ExplicitSegmentsArguments<T>& x, Index entry, Index k,
                             Index first, T* segment) {
  const Matrix<T> a{x.a, x.a_data}, b{x.b, x.b_data};
  Index i = entry / x.a.columns, j = entry % x.a.columns;
  const T own = a.at(i, j);
#pragma unroll 1
  for (Index l = first; l < x.b.columns; ++l) segment[l] = multiply(own, b.at(k, l));
  if (++j == x.a.columns) {
    j = 0;
    if (++k == x.b.rows) {
      k = 0;
      if (++i == x.a.rows) return;
    }
  }
  const T next = a.at(i, j);
#pragma unroll 1
  for (Index l = 0; l < first + elements - x.b.columns; ++l)
    segment[x.b.columns + l] = multiply(next, b.at(k, l));
}

// out[i * b.rows + k, j * b.columns + l] = a[i, j] b[k, l]
//
// a and b have any strides; rows of b are at least as long as a word. out is row-major, contiguous,
// aligned to an element, overlaps neither, and is never read. Each element is one multiplication.
//
// A thread keeps some neighbouring elements of one row of b in registers and goes through elements
// of a, writing one word of each segment. Words begin at different places of the segments, so it
// keeps as many elements as any of these places needs. A word belongs to the segment in which it
// begins. `bytes` is the size and alignment of a word. Elements before the first word and after the
// last one are written singly.
template <class T, int elements, int bytes, int threads, bool streaming>
__global__ void __launch_bounds__(threads)
    explicit_segments(const ExplicitSegmentsArguments<T> x) {
  wait_for_earlier_kernels();
  using Word = OutWord<T, elements, bytes>;
  constexpr int held = 2 * elements - 1;
  const Index columns = x.a.columns * x.b.columns, all = x.a.rows * x.a.columns;
  const unsigned chunk = blockIdx.x % unsigned(x.chunks);
  const Index k = blockIdx.x / unsigned(x.chunks), width = x.b.columns;
  const Index place = (Index(chunk) * threads + threadIdx.x) * elements;
  const Matrix<T> right{x.b, x.b_data};
  if (elements > 1 && blockIdx.x == 0 && blockIdx.y == 0) {
    const Index head = Index(-reinterpret_cast<Bits>(x.out) % bytes / sizeof(T));
    const Matrix<T> left{x.a, x.a_data};
    write_ends<elements, threads>(left, right, x.out, x.a.rows * x.b.rows * columns, head);
  }
  if (place - (elements - 1) >= width) return;
  T b[held];  // columns place - (elements - 1) ... of the row
#pragma unroll
  for (int t = 0; t < held; ++t) {
    const Index l = place + t - (elements - 1);
    b[t] = l < 0 || l >= width ? T{} : right.at(k, l);
  }
  // elements from behind the last element of a row of a to the first one of the next row, in a and
  // in out
  const Index next_row = x.a.row - x.a.columns * x.a.column, next_out = (x.b.rows - 1) * columns;
  const int ahead = place > 0 ? elements : 0;
  const int behind = int(width - place < elements ? width - place : elements);
  for (unsigned group = blockIdx.y; group < unsigned(x.groups); group += gridDim.y) {
    const Index begin = group * x.entries, i = begin / x.a.columns, j = begin % x.a.columns;
    const int count = int(x.entries < all - begin ? x.entries : all - begin);
    const T* entry = x.a_data + i * x.a.row + j * x.a.column;
    T* target = x.out + (i * x.b.rows + k) * columns + j * width + place;
    unsigned in_row = unsigned(x.a.columns - j);
    T value = *entry;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      T* const here = target;
      const T factor = value;
      target += width;
      entry += x.a.column;
      if (--in_row == 0) {
        in_row = unsigned(x.a.columns);
        target += next_out;
        entry += next_row;
      }
      if (n + 1 < count) value = *entry;
      // the aligned word that holds element `here` begins this many elements before it
      const int before = int(unsigned(reinterpret_cast<Bits>(here)) / sizeof(T) % elements);
      if (before > ahead) continue;
      if (elements - before <= behind)
        put<streaming>(reinterpret_cast<Word*>(here - before),
                       shifted_product<elements, bytes>(factor, b, before));
      else if (before + behind > 0)
        write_across<elements>(x, begin + n, k, place - before, here - place);
    }
  }
}

}  // namespace batchkron
