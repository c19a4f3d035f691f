// Gram matrices of one mode: with x (outer, rows, inner) and y (outer, columns, inner),
//   sums[p, q] = Σ conj(x[l, p, r]) y[l, q, r]   over l < outer and r < inner.
// x and y are contiguous and aligned to an element; sums overlaps neither. The sums are cut into
// tiles, and the pairs (l, r) into chunks, which `blocks` thread blocks of each tile share out.
// Block b of a tile writes its part to sums[b, p, q]; gram_total (cuda/gram/total.cuh) adds the parts
// if there are several. All additions have a fixed order. A chunk lies in shared memory pair by pair;
// from there each thread multiplies 4 x 4 elements, or 8 x 8, and several teams of threads, which hold
// a tile each, go through different pairs. The rows of a thread are groups of 4 neighbours, with the
// other threads' groups in between, so that neighbouring threads read neighbouring words.
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
  Index outer_chunks, inner_chunks;
  Index l_next, r_next;          // `blocks` divided by inner_chunks, and what is left
  Index groups;                  // ceil(inner_step / width)
  Index group_factor;            // ceil(2^31 / groups), to divide by groups
  Index near;                    // whether distances within a chunk fit into 31 bits
};

__device__ inline float conjugate(float value) { return value; }
__device__ inline double conjugate(double value) { return value; }
template <class Real>
__device__ Complex<Real> conjugate(Complex<Real> value) { return {value.real, -value.imag}; }

constexpr int gram_group = 4;  // neighbouring rows or columns of a thread

// How `threads` threads copy the rows of a tile, pair by pair, for a chunk: thread t copies the
// elements number t + h · threads. Neighbouring threads take `width` neighbours along r, then go
// to the next row. A chunk has at most `capacity` pairs.
template <int tile, int width, int capacity, int threads>
struct GramCopies {
  static constexpr int stride = tile + gram_group;
  static constexpr int each = (capacity * tile + threads - 1) / threads;

  // Which element number e is: l, r and the row; false if the chunk has no such element.
  template <class T>
  static __device__ bool find(int e, const GramArguments<T>& a, int& l, int& r, int& p) {
    const int groups = int(a.groups), step = int(a.inner_step);
    const int rest = e / (width * tile);
    l = int((long long)(rest)*a.group_factor >> 31);
    r = (rest - l * groups) * width + e % width;
    p = e / width % tile;
    return l < a.outer_step && r < step;
  }

  // Where the thread's elements lie: in x or y behind the chunk's first one, and in shared memory;
  // -1 where there are none. row_step is from l to l + 1.
  template <class T>
  static __device__ void prepare(const GramArguments<T>& a, int rows, Index row_step, int* from,
                                 int* places) {
    UNROLLED for (int h = 0; h < each; ++h) {
      int l, r, p;
      const bool is_there = find(int(threadIdx.x) + h * threads, a, l, r, p);
      places[h] = is_there ? (l * int(a.inner_step) + r) * stride + p : -1;
      from[h] = is_there && p < rows ? int(l * row_step + p * a.inner + r) : -1;
    }
  }
  template <class T>
  static __device__ void load(T* values, const T* chunk, const int* from) {
    UNROLLED for (int h = 0; h < each; ++h) values[h] = from[h] < 0 ? T{} : chunk[from[h]];
  }
  template <class T>
  static __device__ void store(T* shared, const T* values, const int* places) {
    UNROLLED for (int h = 0; h < each; ++h)
      if (places[h] >= 0) shared[places[h]] = values[h];
  }

  // The same at once, for a chunk that is not whole: zeros stand for l and r behind the counts.
  template <class T>
  static __device__ void copy(T* shared, const T* chunk, const GramArguments<T>& a, int rows,
                              Index row_step, int l_count, int r_count) {
    UNROLLED_BY(1) for (int h = 0; h < each; ++h) {
      int l, r, p;
      if (!find(int(threadIdx.x) + h * threads, a, l, r, p)) continue;
      const bool is_there = p < rows && l < l_count && r < r_count;
      shared[(l * int(a.inner_step) + r) * stride + p] =
          is_there ? chunk[l * row_step + p * a.inner + r] : T{};
    }
  }
};

// The part of x and y that a thread block multiplies at once. Its chunks are `blocks` apart.
template <class T>
struct GramChunk {
  Index l, r;  // its number along l and along r

  __device__ GramChunk(const GramArguments<T>& a, Index block)
      : l(block / a.inner_chunks), r(block % a.inner_chunks) {}
  __device__ void advance(const GramArguments<T>& a) {
    l += a.l_next;
    r += a.r_next;
    if (r >= a.inner_chunks) r -= a.inner_chunks, ++l;
  }
  __device__ bool is_there(const GramArguments<T>& a) const { return l < a.outer_chunks; }

  // Values of l and r that are left for it.
  __device__ int l_count(const GramArguments<T>& a) const {
    const Index left = a.outer - l * a.outer_step;
    return int(left < a.outer_step ? left : a.outer_step);
  }
  __device__ int r_count(const GramArguments<T>& a) const {
    const Index left = a.inner - r * a.inner_step;
    return int(left < a.inner_step ? left : a.inner_step);
  }
  // Whether none is missing, and distances have 31 bits.
  __device__ bool is_whole(const GramArguments<T>& a) const {
    return a.near && l_count(a) == a.outer_step && r_count(a) == a.inner_step;
  }
  // Its first element from `row` on, of x or y that has `rows`.
  __device__ const T* first(const GramArguments<T>& a, const T* x, Index rows, int row) const {
    return x + (l * a.outer_step * rows + row) * a.inner + r * a.inner_step;
  }
};

// own: rows and columns whose sums a thread has, 4 or 8. square: x and y have as many rows, in one
// tile, so that their elements lie at the same distances.
template <class T, int row_tile, int column_tile, int own, bool square, int width, int capacity,
          int threads>
__global__ void __launch_bounds__(threads, sizeof(T) > 8 ? 1 : 2) mode_gram(GramArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int u = own, g = gram_group;
  using XCopies = GramCopies<row_tile, width, capacity, threads>;
  using YCopies = GramCopies<column_tile, width, capacity, threads>;
  constexpr int across = column_tile / u, team = row_tile / u * across, teams = threads / team;
  static_assert(row_tile % u == 0 && column_tile % u == 0 && teams > 0, "whole threads");
  using Group = Elements<T, g>;
  constexpr int row_step = row_tile / (u / g), column_step = column_tile / (u / g);  // of groups
  // capacity · (strides of x and y) elements, and room for the sums of half of the teams
  extern __shared__ __align__(64) unsigned char shared_memory[];
  T* const xs = reinterpret_cast<T*>(shared_memory);
  T* const ys = xs + capacity * XCopies::stride;

  const Index tile = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks;
  const int row = int(tile / a.column_tiles) * row_tile;
  const int column = int(tile % a.column_tiles) * column_tile;
  const int rows = int(a.rows) - row, columns = int(a.columns) - column;
  const int mine = int(threadIdx.x) / team, place = int(threadIdx.x) % team;
  const int p0 = place / across * g, q0 = place % across * g;
  const int pairs = int(a.outer_step * a.inner_step);
  const Index x_step = a.rows * a.inner, y_step = a.columns * a.inner;

  int x_from[XCopies::each], x_places[XCopies::each];
  int y_from[square ? 1 : YCopies::each], y_places[square ? 1 : YCopies::each];
  T x_values[XCopies::each], y_values[YCopies::each];
  XCopies::prepare(a, rows, x_step, x_from, x_places);
  if constexpr (!square) YCopies::prepare(a, columns, y_step, y_from, y_places);
  const auto load = [&](const GramChunk<T>& chunk) {
    if (!chunk.is_there(a) || !chunk.is_whole(a)) return;
    XCopies::load(x_values, chunk.first(a, a.x, a.rows, row), x_from);
    YCopies::load(y_values, chunk.first(a, a.y, a.columns, column), square ? x_from : y_from);
  };

  T sums[u][u] = {};
  GramChunk<T> chunk(a, block);
  load(chunk);
  while (chunk.is_there(a)) {
    __syncthreads();
    if (chunk.is_whole(a)) {
      XCopies::store(xs, x_values, x_places);
      YCopies::store(ys, y_values, square ? x_places : y_places);
    } else {
      const int l_count = chunk.l_count(a), r_count = chunk.r_count(a);
      XCopies::copy(xs, chunk.first(a, a.x, a.rows, row), a, rows, x_step, l_count, r_count);
      YCopies::copy(ys, chunk.first(a, a.y, a.columns, column), a, columns, y_step, l_count,
                    r_count);
    }
    __syncthreads();
    chunk.advance(a);
    load(chunk);  // while the one before is multiplied
    if (mine >= teams) continue;
    UNROLLED_BY(2) for (int k = mine; k < pairs; k += teams) {
      Group x[u / g], y[u / g];
      UNROLLED for (int i = 0; i < u / g; ++i) {
        x[i] = *reinterpret_cast<const Group*>(xs + k * XCopies::stride + p0 + i * row_step);
        y[i] = *reinterpret_cast<const Group*>(ys + k * YCopies::stride + q0 + i * column_step);
      }
      UNROLLED for (int i = 0; i < u; ++i)
        UNROLLED for (int j = 0; j < u; ++j)
          sums[i][j] = multiply_add(sums[i][j], conjugate(x[i / g].values[i % g]),
                                    y[j / g].values[j % g]);
    }
  }

  // The upper half of the teams hand their sums to the lower half, until one team has all.
  for (int left = teams; left > 1;) {
    const int kept = (left + 1) / 2;
    __syncthreads();
    if (mine >= kept && mine < left)
      for (int i = 0; i < u; ++i)
        for (int j = 0; j < u; ++j)
          xs[((mine - kept) * u * u + i * u + j) * team + place] = sums[i][j];
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
    for (int j = 0; j < u; ++j) {
      const int p = p0 + i / g * row_step + i % g, q = q0 + j / g * column_step + j % g;
      if (p < rows && q < columns) target[Index(row + p) * a.columns + column + q] = sums[i][j];
    }
}

}  // namespace batchkron
