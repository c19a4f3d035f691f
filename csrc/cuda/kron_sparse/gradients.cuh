// kron_sparse_gradients: gradients of the values of a Kronecker-sparse matrix of real elements.
//   parts[p, i, k, l, j] = sum_n gradient[n, i, k, j] x[n, i, l, j]
// over the vectors n from p each on, below (p + 1) each and `count`, for i < a, k < b, l < c and
// j < d. Vectors lie one after another, x as (count, a, c, d), or along the last axis, as
// (a, c, d, count); the gradient is (count, a, b, d) or (a, b, d, count). All are contiguous and
// aligned to an element, parts overlaps neither. All sizes are positive, a, b, c and d less than
// 2^30; the launch has a thread block for each tile and part, and each part has a vector. Where
// there is one part it is the gradient; else gram_total (cuda/gram/total.cuh) adds them. A sum is a chain
// of multiply-adds in the order of n for each team of threads; those of teams are added in order.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct KronSparseGradientArguments {
  const T* x;
  const T* gradient;
  T* parts;
  Index count, each, a, b, c, d;
};

// A thread block computes a tile of row_threads own_rows rows k, column_threads own_columns columns
// l, and J neighbouring j, of which a thread has own_rows x own_columns sums of one j. Each of some
// teams of threads takes every teams-th vector of a panel of `depth` vectors. last: vectors lie
// along the last axis, and J = 1. stages: panels in shared memory at a time.
template <class T, bool last, int J, int row_threads, int column_threads, int own_rows,
          int own_columns, int teams, int depth, int stages>
struct SparseGradients {
  using Arguments = KronSparseGradientArguments<T>;
  static constexpr int rows = row_threads * own_rows, columns = column_threads * own_columns;
  static constexpr int team = J * row_threads * column_threads;
  static constexpr int threads = (team * teams + 31) / 32 * 32;
  static constexpr int most = 16 / int(sizeof(T));  // elements that are read together
  static constexpr int of_rows = own_rows < most ? own_rows : most;
  static constexpr int of_columns = own_columns < most ? own_columns : most;
  static_assert(own_rows % of_rows == 0 && own_columns % of_columns == 0 && depth % teams == 0 &&
                    (!last || J == 1),
                "whole parts");

  // A panel is [J][depth][row]: in a row, rows k of the gradient, then columns l of x. Neighbouring
  // lanes write down 8 rows and along 4 elements, or along J panels: all in different banks.
  static constexpr int first_column = (rows + most - 1) / most * most;
  static constexpr int plain = (first_column + columns + 3) / 4 * 4;
  static constexpr int row = plain % 8 == 4 ? plain : plain + 4;
  static constexpr int plane = depth * row + (J > 1 ? 32 / J : 0);
  static constexpr int stage = J * plane;  // elements

  // How a panel is copied: a thread copies the same elements of every `down`-th vector.
  static constexpr int entries = J * (rows + columns);
  static constexpr int down = last ? 8 : threads >= 2 * entries ? threads / entries : 1;
  static constexpr int across = last ? threads / 8 : down > 1 ? entries : threads;
  static constexpr int turns = (entries + across - 1) / across;
  static_assert(depth % 8 == 0, "8 neighbours along the last axis");

  class Copies {
    const T* safe;
    const T* from[turns];  // in the thread's first vector of the next panel
    int to[turns];         // element of the panel where it goes, -1 if there is none
    Index steps[turns];    // elements from one vector to the next
    int first, left;       // the thread's first vector of a panel; vectors that are left

   public:
    __device__ Copies(const Arguments& a, int i, int k, int l, int j, Index begin, int count)
        : safe(a.x), left(count) {
      const int place = last ? int(threadIdx.x) / 8 : int(threadIdx.x) % across;
      first = last ? int(threadIdx.x) % 8 : int(threadIdx.x) / across;
      UNROLLED for (int n = 0; n < turns; ++n) {
        const int entry = place + n * across, own_j = entry % J, number = entry / J;
        const bool of_x = number >= rows;
        const int inside = of_x ? number - rows : number;
        const Index size = of_x ? a.c : a.b, at = (of_x ? l : k) + inside;
        const bool exists = entry < entries && first < down;
        to[n] = exists ? own_j * plane + first * row + (of_x ? first_column : 0) + inside : -1;
        steps[n] = last ? 1 : a.a * size * a.d;
        const Index element = (i * size + at) * a.d + j + own_j;
        const Index offset =
            last ? element * a.count + begin + first : (begin + first) * steps[n] + element;
        from[n] = exists && at < size && j + own_j < a.d ? (of_x ? a.x : a.gradient) + offset
                                                          : nullptr;
      }
    }

    // Begins to copy the next panel, if any, and ends a batch of copies. What does not exist
    // becomes zero.
    __device__ void next(T* panel) {
      if (left > 0) {
        UNROLLED for (int n = 0; n < turns; ++n) {
          if (to[n] < 0) continue;
          const T* source = from[n];
          UNROLLED for (int s = 0; s < depth; s += down) {
            if (depth % down != 0 && s + first >= depth) break;
            const bool wanted = from[n] != nullptr && s + first < left;
            copy_asynchronously_first<int(sizeof(T))>(panel + to[n] + s * row,
                                                      wanted ? source : safe,
                                                      wanted ? int(sizeof(T)) : 0);
            source += down * steps[n];
          }
          if (from[n] != nullptr) from[n] += depth * steps[n];
        }
        left -= depth;
      }
      commit_copies();
    }
  };

  template <int own, int together, int across_threads>
  __device__ static void read(T (&values)[own], const T* from, int thread) {
    UNROLLED for (int n = 0; n < own / together; ++n) {
      const auto word = *reinterpret_cast<const Elements<T, together>*>(
          from + (n * across_threads + thread) * together);
      UNROLLED for (int i = 0; i < together; ++i) values[n * together + i] = word.values[i];
    }
  }

  // Adds the sums of all teams to those of the first, one team after another.
  __device__ static void add_teams(T (&sums)[own_rows][own_columns], T* shared, int mine,
                                   int place) {
    UNROLLED_BY(1) for (int other = 1; other < teams; ++other) {
      __syncthreads();
      if (mine == other)
        UNROLLED for (int r = 0; r < own_rows; ++r)
          UNROLLED for (int c = 0; c < own_columns; ++c)
            shared[(r * own_columns + c) * team + place] = sums[r][c];
      __syncthreads();
      if (mine == 0)
        UNROLLED for (int r = 0; r < own_rows; ++r)
          UNROLLED for (int c = 0; c < own_columns; ++c)
            sums[r][c] = add(sums[r][c], shared[(r * own_columns + c) * team + place]);
    }
  }

  __device__ static void run(const Arguments& a, T* shared) {
    const unsigned down_tiles = unsigned(a.b + rows - 1) / rows;
    const unsigned across_tiles = unsigned(a.c + columns - 1) / columns;
    const unsigned js = unsigned(a.d + J - 1) / J;
    const Index tiles = a.a * js * across_tiles * down_tiles;
    const Index part = blockIdx.x / tiles;
    Index number = blockIdx.x - part * tiles;
    const int k = int(number % down_tiles) * rows;
    number /= down_tiles;
    const int l = int(number % across_tiles) * columns;
    number /= across_tiles;
    const int j = int(number % js) * J, i = int(number / js);
    const Index begin = part * a.each, rest = a.count - begin;
    const int count = int(rest < a.each ? rest : a.each);

    const int mine = int(threadIdx.x) / team, place = int(threadIdx.x) % team;
    const int own_j = place / (row_threads * column_threads);
    const int across_thread = place % column_threads;
    const int down_thread = place / column_threads % row_threads;
    Copies copies(a, i, k, l, j, begin, count);
    UNROLLED for (int s = 0; s < stages - 1; ++s) copies.next(shared + s * stage);
    T sums[own_rows][own_columns] = {};
    int read_stage = 0, write_stage = stages - 1;
    UNROLLED_BY(1) for (int done = 0; done < count; done += depth) {
      wait_for_copies<stages - 2>();
      __syncthreads();  // the panel is there, and the one before has been read
      copies.next(shared + write_stage * stage);
      write_stage = write_stage + 1 == stages ? 0 : write_stage + 1;
      const T* const panel = shared + read_stage * stage + own_j * plane;
      read_stage = read_stage + 1 == stages ? 0 : read_stage + 1;
      if (mine >= teams) continue;
      UNROLLED_BY(2) for (int s = mine; s < depth; s += teams) {
        T down_values[own_rows], across_values[own_columns];
        read<own_rows, of_rows, row_threads>(down_values, panel + s * row, down_thread);
        read<own_columns, of_columns, column_threads>(
            across_values, panel + s * row + first_column, across_thread);
        UNROLLED for (int r = 0; r < own_rows; ++r)
          UNROLLED for (int c = 0; c < own_columns; ++c)
            sums[r][c] = multiply_add(sums[r][c], down_values[r], across_values[c]);
      }
    }
    if constexpr (teams > 1) add_teams(sums, shared, mine, place);
    if (mine > 0 || j + own_j >= a.d) return;
    T* const target = a.parts + part * a.a * a.b * a.c * a.d + j + own_j;
    UNROLLED for (int r = 0; r < own_rows; ++r) {
      const int row_k = k + (r / of_rows * row_threads + down_thread) * of_rows + r % of_rows;
      UNROLLED for (int c = 0; c < own_columns; ++c) {
        const int column =
            l + (c / of_columns * column_threads + across_thread) * of_columns + c % of_columns;
        if (row_k < a.b && column < a.c)
          target[((i * a.b + row_k) * a.c + column) * a.d] = sums[r][c];
      }
    }
  }
};

// blocks: thread blocks on a multiprocessor.
template <class T, bool last, int J, int row_threads, int column_threads, int own_rows,
          int own_columns, int teams, int depth, int stages, int blocks>
__global__ void __launch_bounds__(
    (J * row_threads * column_threads * teams + 31) / 32 * 32, blocks)
    kron_sparse_gradients(const KronSparseGradientArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SparseGradients<T, last, J, row_threads, column_threads, own_rows, own_columns, teams, depth,
                  stages>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
