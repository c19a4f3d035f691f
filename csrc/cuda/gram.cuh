// Gram matrices of one mode: with x (outer, rows, inner) and y (outer, columns, inner),
//
//   sums[p, q] = Σ conj(x[l, p, r]) y[l, q, r]   over l < outer and r < inner.
//
// x and y are contiguous and aligned to an element; sums overlaps neither. The sums are cut into
// tiles, and the pairs (l, r) into chunks, which `blocks` thread blocks of each tile share out. Block
// b of a tile writes its part to sums[b, p, q]; gram_total adds the parts if there are several. All
// additions have a fixed order. A chunk lies in shared memory pair by pair; from there each thread
// multiplies 4 x 4 elements, and several teams of threads, which hold a tile each, go through
// different pairs.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct GramArguments {
  const T* x;
  const T* y;
  T* sums;
  Index outer, rows, columns, inner;
  Index blocks, column_tiles;    // thread blocks of a tile, tiles of columns
  Index outer_step, inner_step;  // values of l and of r in a chunk
  Index inner_chunks, chunks;    // chunks along r, and in all
  Index groups;                  // ceil(inner_step / width)
  Index group_factor;            // ceil(2^31 / groups), to divide by groups
};

__device__ inline float conjugate(float value) { return value; }
__device__ inline double conjugate(double value) { return value; }
template <class Real>
__device__ Complex<Real> conjugate(Complex<Real> value) {
  return {value.real, -value.imag};
}

constexpr int gram_micro = 4;  // a thread's tile is 4 x 4

// Copies rows first to first + tile of the chunk that begins at `from`, pair by pair; zeros stand
// for what lies outside. Neighbouring threads read `width` neighbours along r, then go to the next
// row.
template <int tile, int width, int threads, class T>
__device__ void stage_chunk(T* shared, const T* from, int rows, int l_count, int r_count,
                            const GramArguments<T>& a, Index row_step) {
  constexpr int stride = tile + gram_micro;
  constexpr int held = 4;  // elements that a thread loads before it stores the first
  const int groups = int(a.groups), step = int(a.inner_step);
  const int count = int(a.outer_step) * groups * width * tile;
  for (int begin = threadIdx.x; begin < count; begin += held * threads) {
    T values[held];
    int places[held];
#pragma unroll
    for (int h = 0; h < held; ++h) {
      const int e = begin + h * threads;
      const int low = e % width, p = e / width % tile, rest = e / (width * tile);
      const int l = int((long long)(rest) * a.group_factor >> 31);
      const int r = (rest - l * groups) * width + low;
      values[h] = T{};
      places[h] = e < count && r < step ? (l * step + r) * stride + p : -1;
      if (places[h] >= 0 && p < rows && l < l_count && r < r_count)
        values[h] = from[l * row_step + p * a.inner + r];
    }
#pragma unroll
    for (int h = 0; h < held; ++h)
      if (places[h] >= 0) shared[places[h]] = values[h];
  }
}

template <class T, int row_tile, int column_tile, int width, int capacity, int threads>
__global__ void __launch_bounds__(threads) mode_gram(GramArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int u = gram_micro;
  constexpr int x_stride = row_tile + u, y_stride = column_tile + u;
  constexpr int across = column_tile / u, team = row_tile / u * across, teams = threads / team;
  static_assert(row_tile % u == 0 && column_tile % u == 0 && teams > 0, "tiles of 4 x 4");
  using Four = Elements<T, u>;
  // capacity · (x_stride + y_stride) elements, and room for the sums of half of the teams
  extern __shared__ __align__(64) unsigned char shared_memory[];
  T* const xs = reinterpret_cast<T*>(shared_memory);
  T* const ys = xs + capacity * x_stride;

  const Index tile = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks;
  const int row = int(tile / a.column_tiles) * row_tile;
  const int column = int(tile % a.column_tiles) * column_tile;
  const int rows = int(a.rows) - row, columns = int(a.columns) - column;
  const int mine = int(threadIdx.x) / team, place = int(threadIdx.x) % team;
  const int p0 = place / across * u, q0 = place % across * u;
  const int pairs = int(a.outer_step * a.inner_step);

  T sums[u][u] = {};
  for (Index chunk = block; chunk < a.chunks; chunk += a.blocks) {
    const Index l0 = chunk / a.inner_chunks * a.outer_step;
    const Index r0 = chunk % a.inner_chunks * a.inner_step;
    const Index l_left = a.outer - l0, r_left = a.inner - r0;
    const int l_count = int(l_left < a.outer_step ? l_left : a.outer_step);
    const int r_count = int(r_left < a.inner_step ? r_left : a.inner_step);
    __syncthreads();
    stage_chunk<row_tile, width, threads>(xs, a.x + (l0 * a.rows + row) * a.inner + r0, rows,
                                          l_count, r_count, a, a.rows * a.inner);
    stage_chunk<column_tile, width, threads>(ys, a.y + (l0 * a.columns + column) * a.inner + r0,
                                             columns, l_count, r_count, a, a.columns * a.inner);
    __syncthreads();
    if (mine >= teams) continue;
#pragma unroll 2
    for (int k = mine; k < pairs; k += teams) {
      const Four x = *reinterpret_cast<const Four*>(xs + k * x_stride + p0);
      const Four y = *reinterpret_cast<const Four*>(ys + k * y_stride + q0);
#pragma unroll
      for (int i = 0; i < u; ++i)
#pragma unroll
        for (int j = 0; j < u; ++j)
          sums[i][j] = multiply_add(sums[i][j], conjugate(x.values[i]), y.values[j]);
    }
  }

  // The upper half of the teams hand their sums to the lower half, until one team has all.
  for (int left = teams; left > 1;) {
    const int kept = (left + 1) / 2;
    __syncthreads();
    if (mine >= kept && mine < left)
      for (int i = 0; i < u; ++i)
        for (int j = 0; j < u; ++j) xs[((mine - kept) * u * u + i * u + j) * team + place] = sums[i][j];
    __syncthreads();
    if (mine < left - kept)
      for (int i = 0; i < u; ++i)
        for (int j = 0; j < u; ++j)
          sums[i][j] = add(sums[i][j], xs[(mine * u * u + i * u + j) * team + place]);
    left = kept;
  }
  if (mine > 0) return;
  T* const target = a.sums + block * a.rows * a.columns;
  for (int i = 0; i < u; ++i)
    for (int j = 0; j < u; ++j)
      if (p0 + i < rows && q0 + j < columns)
        target[Index(row + p0 + i) * a.columns + column + q0 + j] = sums[i][j];
}

template <class T>
struct GramTotalArguments {
  const T* parts;
  T* sums;
  Index count, blocks;  // elements of the sums, and how many parts they have
};

// sums[i] = Σ parts[b, i] over the blocks b. Thread t of a block of `threads` adds every
// `shares`-th part of element t % (threads / shares).
template <class T, int threads, int shares>
__global__ void __launch_bounds__(threads) gram_total(GramTotalArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int elements = threads / shares;
  extern __shared__ __align__(16) unsigned char shared_memory[];  // an element of T for each thread
  T* const shared = reinterpret_cast<T*>(shared_memory);
  const int element = int(threadIdx.x) % elements, share = int(threadIdx.x) / elements;
  const Index i = Index(blockIdx.x) * elements + element;
  T sum{};
  if (i < a.count)
    for (Index b = share; b < a.blocks; b += shares) sum = add(sum, a.parts[b * a.count + i]);
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (share > 0 || i >= a.count) return;
  for (int s = 1; s < shares; ++s) sum = add(sum, shared[s * elements + element]);
  a.sums[i] = sum;
}

}  // namespace batchkron
