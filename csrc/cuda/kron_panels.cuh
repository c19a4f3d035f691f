// y = alpha (I_L x A x I_R) x + beta previous for one factor of any size. A thread block multiplies
// `fibres` fibres by `results` rows of the factor: panels of `depth` entries of both follow one
// another through shared memory, so that neither has to fit there.
#pragma once

#include "asynchronous_copy.cuh"
#include "double_units.cuh"
#include "kron_arguments.cuh"

namespace batchkron {

// C, K: the factor is K x C. along: R is 1, so that entries of a fibre lie together. rows, columns:
// fibres and results of a thread; in double precision rows and columns of a warp's products on
// matrix units, of which the columns lie together in y. stages: panels in shared memory. blocks:
// thread blocks of a multiprocessor.
template <int C_, int K_, bool along_, int fibres_, int results_, int depth_, int rows_,
          int columns_, int threads_, int stages_, int blocks_>
struct PanelCut {
  static constexpr int C = C_, K = K_, fibres = fibres_, results = results_, depth = depth_;
  static constexpr int rows = rows_, columns = columns_, threads = threads_;
  static constexpr int stages = stages_, blocks = blocks_;
  static constexpr bool along = along_;
  static constexpr int steps = (C + depth - 1) / depth;
};

template <class T>
struct IsDouble {
  static constexpr bool value = false;
};
template <>
struct IsDouble<double> {
  static constexpr bool value = true;
};

// A panel in shared memory: `depth` entries of each of `size` fibres or rows of the factor. Entries
// lie together, or the fibres of an entry do; pads keep what a warp reads in different banks.
template <class T, int size_, int depth, bool entries_together>
struct PanelLayout {
  static constexpr int pack = 16 / int(sizeof(T)), size = size_;
  static constexpr int pad = IsDouble<T>::value ? 4 : pack;
  static constexpr int stride = (entries_together ? depth : size) + pad;
  static constexpr int elements = (entries_together ? size : depth) * stride;

  __device__ static constexpr int place(int i, int d) {
    return entries_together ? i * stride + d : d * stride + i;
  }
};

template <class T, class Cut>
struct Panels {
  using Fibres = PanelLayout<T, Cut::fibres, Cut::depth, Cut::along>;
  using Results = PanelLayout<T, Cut::results, Cut::depth, true>;
  static constexpr int stage = Fibres::elements + Results::elements;
};

// What a thread has of a tile's sums, on ordinary cores.
template <class T, class Cut>
struct PanelSums {
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = Cut::fibres / Cut::rows;     // threads along fibres
  static constexpr int down = Cut::results / Cut::columns;   // and along results
  static constexpr int lanes = Cut::along ? 4 : 8;           // of a warp, along fibres
  static constexpr int together = Cut::along ? 1 : pack;     // neighbouring fibres of a thread
  static constexpr int fibre_groups = Cut::rows / together, result_groups = Cut::columns;
  using Fibres = typename Panels<T, Cut>::Fibres;
  using Results = typename Panels<T, Cut>::Results;
  static_assert(across * down == Cut::threads && across % lanes == 0, "whole warps");
  static_assert(Cut::rows % together == 0 && Cut::depth % pack == 0, "whole words");
  struct alignas(16) Word {
    T values[pack];
  };
  T sums[Cut::rows][Cut::columns];
  int row, column;

  // Neighbouring lanes share fibres, every other one results: their words are read at once.
  __device__ explicit PanelSums(int thread)
      : row(thread % 32 / 2 % lanes + thread / 32 % (across / lanes) * lanes),
        column(thread % 2 + thread % 32 / (2 * lanes) * 2 +
               thread / 32 / (across / lanes) * (32 / lanes)) {
    clear();
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Cut::rows; ++i)
#pragma unroll
      for (int j = 0; j < Cut::columns; ++j) sums[i][j] = T{};
  }

  // The first fibre and result of a group, and the sums of a group that lie together in y.
  __device__ int fibre(int v) const { return (v * across + row) * together; }
  __device__ int result(int j) const { return j * down + column; }
  __device__ T at(int v, int j, int i) const { return sums[v * together + i][j]; }

  __device__ static Word word(const T* from) { return *reinterpret_cast<const Word*>(from); }

  // Adds the products of panels, and calls copy(), which begins to copy others.
  template <class Copy>
  __device__ void add(const T* fibres, const T* results, Copy copy) {
    copy();
#pragma unroll
    for (int d = 0; d < Cut::depth; d += pack) {
      Word b[Cut::columns];
#pragma unroll
      for (int j = 0; j < Cut::columns; ++j)
        b[j] = word(results + Results::place(column, d) + Results::place(j * down, 0));
      if constexpr (Cut::along) {
#pragma unroll
        for (int i = 0; i < Cut::rows; ++i) {
          const Word a = word(fibres + Fibres::place(row, d) + Fibres::place(i * across, 0));
#pragma unroll
          for (int e = 0; e < pack; ++e)
#pragma unroll
            for (int j = 0; j < Cut::columns; ++j)
              sums[i][j] = multiply_add(sums[i][j], a.values[e], b[j].values[e]);
        }
      } else {
#pragma unroll
        for (int e = 0; e < pack; ++e)
#pragma unroll
          for (int v = 0; v < Cut::rows; v += pack) {
            const Word a = word(fibres + Fibres::place(row * pack, d + e) + v * across);
#pragma unroll
            for (int i = 0; i < pack; ++i)
#pragma unroll
              for (int j = 0; j < Cut::columns; ++j)
                sums[v + i][j] = multiply_add(sums[v + i][j], a.values[i], b[j].values[e]);
          }
      }
    }
  }
};

// The same in double precision on matrix units: fragments of 16 rows by 8 columns.
template <class Cut>
struct PanelSums<double, Cut> {
  static constexpr int blocks = Cut::rows / 16, tiles = Cut::columns / 8;
  using Fibres = typename Panels<double, Cut>::Fibres;
  using Results = typename Panels<double, Cut>::Results;
  using Rows = typename Choice<Cut::along, Fibres, Results>::Type;
  using Columns = typename Choice<Cut::along, Results, Fibres>::Type;
  static constexpr int warps = Columns::size / Cut::columns;  // side by side
  static_assert(Rows::size / Cut::rows * warps * 32 == Cut::threads, "a warp each");
  static constexpr int together = 2;  // neighbours in y
  static constexpr int fibre_groups = Cut::along ? 2 * blocks : tiles;
  static constexpr int result_groups = Cut::along ? tiles : 2 * blocks;
  double sums[tiles][blocks][4];
  int row, column, lane;

  __device__ explicit PanelSums(int thread)
      : row(thread / 32 / warps * Cut::rows),
        column(thread / 32 % warps * Cut::columns),
        lane(thread % 32) {
    clear();
  }
  __device__ void clear() {
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int m = 0; m < blocks; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][m][i] = 0;
  }

  __device__ int of_rows(int group) const { return row + 8 * group + lane / 4; }
  __device__ int of_columns(int tile) const { return column + 8 * tile + 2 * (lane % 4); }
  __device__ int fibre(int v) const { return Cut::along ? of_rows(v) : of_columns(v); }
  __device__ int result(int j) const { return Cut::along ? of_columns(j) : of_rows(j); }
  __device__ double at(int v, int j, int i) const {
    const int group = Cut::along ? v : j;
    return sums[Cut::along ? j : v][group / 2][group % 2 * 2 + i];
  }

  // As above, but matrix units have their first products before copies take the issue slots.
  template <class Copy>
  __device__ void add(const double* fibres, const double* results, Copy copy) {
    const double* const from_a =
        (Cut::along ? fibres : results) + Rows::place(row + lane / 4, lane % 4);
    const double* const from_b =
        (Cut::along ? results : fibres) + Columns::place(column + lane / 4, lane % 4);
#pragma unroll
    for (int d = 0; d < Cut::depth; d += 4) {
      double a[2 * blocks], b[tiles];
#pragma unroll
      for (int h = 0; h < 2 * blocks; ++h) a[h] = from_a[Rows::place(8 * h, d)];
#pragma unroll
      for (int t = 0; t < tiles; ++t) b[t] = from_b[Columns::place(8 * t, d)];
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int m = 0; m < blocks; ++m)
          multiply_16_8_4(sums[t][m], a[2 * m], a[2 * m + 1], b[t]);
      if (d == 0) copy();
    }
  }
};

// Copies the panels of a thread block's tiles one after another.
template <class T, class Cut>
class PanelCopies {
  using Layout = Panels<T, Cut>;
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = (Cut::K + Cut::results - 1) / Cut::results;  // tiles of a fibre
  const KronArguments<T, 1>& a;
  T* const shared;
  Index tile;
  int step = 0, stage = 0;
  bool fibre_words, factor_words, whole;
  const T* fibres;  // the thread's first one, of the tile
  const T* rows;    // the thread's first one of the factor
  Index left_fibres;
  int left_rows;  // both from the thread's first one on

  // A thread copies `count` elements of every `threads / parts`-th fibre or row.
  template <int count>
  static constexpr int parts = Cut::depth / count;
  template <int count>
  __device__ static int own() {
    return threadIdx.x / parts<count>;
  }
  // Or, where the fibres of an entry lie together, of every `threads / widths`-th entry.
  template <int count>
  static constexpr int widths = Cut::fibres / count;
  template <int count>
  __device__ static int own_fibre() {
    return threadIdx.x % widths<count> * count;
  }

  __device__ void locate() {
    const Index first = tile / across * Cut::fibres;
    const int first_row = int(tile % across) * Cut::results;
    const int row = factor_words ? own<pack>() : own<1>();
    const Factor<T>& factor = a.factors[0];
    rows = factor.data + (first_row + row) * factor.row;
    left_rows = Cut::K - first_row - row;
    const int fibre = Cut::along    ? (fibre_words ? own<pack>() : own<1>())
                      : fibre_words ? own_fibre<pack>()
                                    : own_fibre<1>();
    const Index number = first + fibre;
    left_fibres = a.L * a.R - number;
    fibres = a.x + (Cut::along ? number * Cut::C : number / a.R * Cut::C * a.R + number % a.R);
  }

  // `safe`: an address that is aligned for whatever is copied, where nothing is wanted.
  template <int count, class Panel, class Left>
  __device__ void copy_entries(T* panel, const T* from, Index row, Index column, Left rows_left,
                               const T* safe) {
    constexpr int together = Cut::threads / parts<count>;
    static_assert(Cut::threads % parts<count> == 0, "the same entries of all of them");
    const int d = threadIdx.x % parts<count> * count;
    const bool has = d < Cut::C - step * Cut::depth;
    const T* source = has ? from + (step * Cut::depth + d) * column : from;
    T* const target = panel + Panel::place(own<count>(), d);
#pragma unroll
    for (int n = 0; n < Panel::size; n += together) {
      if (n + together > Panel::size && own<count>() >= Panel::size - n) break;  // the last few
      const bool wanted = has && n < rows_left;
      copy<count>(target + Panel::place(n, 0), wanted ? source : safe, wanted);
      source += together * row;
    }
  }

  template <int count>
  __device__ void copy_fibres(T* panel) {
    constexpr int together = Cut::threads / widths<count>;
    static_assert(Cut::threads % widths<count> == 0 && Cut::depth % together == 0,
                  "the same fibres");
    const int d = threadIdx.x / widths<count>, left = Cut::C - step * Cut::depth;
    const T* source = fibres + Index(step * Cut::depth + d) * a.R;
    T* const target = panel + Layout::Fibres::place(own_fibre<count>(), d);
#pragma unroll
    for (int e = 0; e < Cut::depth; e += together) {
      const bool wanted = d + e < left && left_fibres > 0;
      copy<count>(target + Layout::Fibres::place(0, e), wanted ? source : a.x, wanted);
      source += together * a.R;
    }
  }

  template <int count>
  __device__ void copy(T* to, const T* from, bool wanted) const {
    constexpr int bytes = count * int(sizeof(T)), part = int(alignof(T));
    if (count > 1 || part == int(sizeof(T)) || whole) {
      copy_asynchronously_first<bytes>(to, from, wanted ? bytes : 0);
    } else {
      const auto at = [](const T* first) { return reinterpret_cast<const unsigned char*>(first); };
      for (int n = 0; n < bytes; n += part)
        copy_asynchronously_first<part>(const_cast<unsigned char*>(at(to) + n), at(from) + n,
                                        wanted ? part : 0);
    }
  }

 public:
  __device__ PanelCopies(const KronArguments<T, 1>& arguments, T* target)
      : a(arguments), shared(target), tile(blockIdx.x) {
    const Factor<T>& factor = a.factors[0];
    whole = is_whole(a.x) && is_whole(factor.data);
    fibre_words = is_aligned(a.x) && (Cut::along ? Index(Cut::C) : a.R) % pack == 0;
    factor_words = is_aligned(factor.data) && factor.column == 1 && factor.row % pack == 0 &&
                   Cut::C % pack == 0;
    locate();
  }

  __device__ static bool is_aligned(const T* first) {
    return reinterpret_cast<unsigned long long>(first) % 16 == 0;
  }
  __device__ static bool is_whole(const T* first) {
    return reinterpret_cast<unsigned long long>(first) % sizeof(T) == 0;
  }

  // Begins to copy the next panels, if any.
  __device__ void next(Index tiles) {
    if (tile < tiles) {
      T* const panel = shared + stage * Layout::stage;
      T* const results = panel + Layout::Fibres::elements;
      if constexpr (Cut::along) {
        if (fibre_words)
          copy_entries<pack, typename Layout::Fibres>(panel, fibres, Cut::C, 1, left_fibres, a.x);
        else
          copy_entries<1, typename Layout::Fibres>(panel, fibres, Cut::C, 1, left_fibres, a.x);
      } else {
        if (fibre_words)
          copy_fibres<pack>(panel);
        else
          copy_fibres<1>(panel);
      }
      const Factor<T>& factor = a.factors[0];
      if (factor_words)
        copy_entries<pack, typename Layout::Results>(results, rows, factor.row, 1, left_rows,
                                                     factor.data);
      else
        copy_entries<1, typename Layout::Results>(results, rows, factor.row, factor.column,
                                                  left_rows, factor.data);
      stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      if (++step == Cut::steps) {
        step = 0;
        tile += gridDim.x;
        if (tile < tiles) locate();
      }
    }
    commit_copies();
  }
};

template <class T, class Cut>
struct PanelKernel {
  using Arguments = KronArguments<T, 1>;
  using Layout = Panels<T, Cut>;
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = (Cut::K + Cut::results - 1) / Cut::results;  // tiles of a fibre

  using Sums = PanelSums<T, Cut>;
  static constexpr int together = Sums::together;
  static constexpr int kBatch = 8;  // results that a thread reads before it writes any
  struct alignas(together * sizeof(T)) Word {
    T values[together];
  };

  // Where a thread's fibres begin in y, if R is not 1: without a division for each.
  template <int pieces>
  struct Begins {
    Index at[Cut::along ? 1 : Sums::fibre_groups][pieces];

    __device__ Begins(const Arguments& a, Index first, const Sums& sums) {
      if constexpr (!Cut::along) {
        const Index slice = first / a.R, rest = first % a.R;
#pragma unroll
        for (int v = 0; v < Sums::fibre_groups; ++v)
#pragma unroll
          for (int n = 0; n < pieces; ++n) {
            Index column = rest + (sums.fibre(v) + n), row = slice;
            if (a.R < Cut::fibres) {
              row += unsigned(column) / unsigned(a.R);
              column = unsigned(column) % unsigned(a.R);
            } else if (column >= a.R) {
              ++row;
              column -= a.R;
            }
            at[v][n] = row * Cut::K * a.R + column;
          }
      }
    }
  };

  // The sums of a tile to y. Of what was there a thread reads some before it writes any: previous
  // may be y, so that each load would wait for the store before.
  template <bool words>
  __device__ static void store(const Arguments& a, Index tile, const Sums& sums) {
    constexpr int groups = Sums::fibre_groups * Sums::result_groups, batch = kBatch / together;
    constexpr int pieces = words ? 1 : together;  // that a group is stored in
    const Index first = tile / across * Cut::fibres, left = a.L * a.R - first;
    const int first_result = int(tile % across) * Cut::results;
    const Begins<pieces> begins(a, first, sums);
    const auto place = [&](int group, int n) {  // -1: there is none
      const int v = group / Sums::result_groups, fibre = sums.fibre(v);
      const int result = first_result + sums.result(group % Sums::result_groups);
      if constexpr (Cut::along)
        return fibre < left && result + n < Cut::K
                   ? first * Cut::K + fibre * Cut::K + result + n
                   : -1;
      else
        return fibre + n < left && result < Cut::K ? begins.at[v][n] + result * a.R : -1;
    };
#pragma unroll
    for (int e = 0; e < groups; e += batch) {
      Word old[batch];
      if (a.previous) {
#pragma unroll
        for (int g = 0; g < batch && e + g < groups; ++g)
#pragma unroll
          for (int n = 0; n < pieces; ++n) {
            const Index at = place(e + g, n);
            if constexpr (words)
              old[g] = at < 0 ? Word{} : *reinterpret_cast<const Word*>(a.previous + at);
            else
              old[g].values[n] = at < 0 ? T{} : a.previous[at];
          }
      }
#pragma unroll
      for (int g = 0; g < batch && e + g < groups; ++g) {
        Word word;
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const T value = sums.at((e + g) / Sums::result_groups, (e + g) % Sums::result_groups, i);
          word.values[i] = multiply(a.alpha, value);
          if (a.previous)
            word.values[i] = multiply_add(word.values[i], a.beta, old[g].values[i]);
        }
#pragma unroll
        for (int n = 0; n < pieces; ++n) {
          const Index at = place(e + g, n);
          if (at < 0) continue;
          if constexpr (words)
            *reinterpret_cast<Word*>(a.y + at) = word;
          else
            a.y[at] = word.values[n];
        }
      }
    }
  }

  __device__ static void run(const Arguments& a, T* shared) {
    using Copies = PanelCopies<T, Cut>;
    const bool words = (Cut::along ? Index(Cut::K) : a.R) % pack == 0 && Copies::is_aligned(a.y) &&
                       (!a.previous || Copies::is_aligned(a.previous));
    const Index tiles = (a.L * a.R + Cut::fibres - 1) / Cut::fibres * across;
    Copies copies(a, shared);
#pragma unroll
    for (int s = 0; s < Cut::stages - 1; ++s) copies.next(tiles);
    PanelSums<T, Cut> sums(threadIdx.x);
    int stage = 0;
#pragma unroll 1
    for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll 1
      for (int step = 0; step < Cut::steps; ++step) {
        wait_for_copies<Cut::stages - 2>();
        __syncthreads();
        const T* const panel = shared + stage * Layout::stage;
        sums.add(panel, panel + Layout::Fibres::elements, [&] { copies.next(tiles); });
        stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      }
      if (words)
        store<true>(a, tile, sums);
      else
        store<false>(a, tile, sums);
      sums.clear();
    }
  }
};

template <class T, class Cut>
__global__ void __launch_bounds__(Cut::threads, Cut::blocks)
    kron_panels(const KronArguments<T, 1> a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  PanelKernel<T, Cut>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
