// For cuda/kron/panels.cuh: asynchronous copies of panels of the fibres and of the factor to shared
// memory. Entries beyond C, fibres beyond the last one and rows beyond K become zero.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/kron/arguments.cuh"
#include "cuda/kron/panel_sums.cuh"

namespace batchkron {

// Copies the panels of all tiles of a thread block, one after another.
template <class T, class Cut>
class PanelCopies {
  using Layout = Panels<T, Cut>;
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = (Cut::K + Cut::results - 1) / Cut::results;  // tiles of a fibre
  const KronArguments<T, 1>& a;
  T* const shared;
  Index tile;
  int step = 0, stage = 0;
  // Whether fibres, and the factor, are copied by words of 16 bytes; whether elements are aligned
  // to their size (a complex number may be aligned to one part only).
  bool fibre_words, factor_words, whole;
  const T* fibres;  // the first fibre of the tile that the thread copies from
  const T* rows;    // the first row of the factor
  Index left_fibres;  // fibres from that one to the last
  int left_rows;      // rows from that one to the last

  // If the entries of a fibre (or row) are contiguous, a thread copies `count` entries of every
  // (threads / parts)-th fibre.
  template <int count>
  static constexpr int parts = Cut::depth / count;
  template <int count>
  __device__ static int own() { return threadIdx.x / parts<count>; }
  // If the fibres of an entry are contiguous, a thread copies `count` fibres of every
  // (threads / widths)-th entry.
  template <int count>
  static constexpr int widths = Cut::fibres / count;
  template <int count>
  __device__ static int own_fibre() { return threadIdx.x % widths<count> * count; }

  // Finds the thread's first fibre and row of the current tile.
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

  // `safe`: a valid, aligned address to name where nothing is to be read.
  template <int count, class Panel, class Left>
  __device__ void copy_entries(T* panel, const T* from, Index row, Index column, Left rows_left,
                               const T* safe) {
    constexpr int together = Cut::threads / parts<count>;
    static_assert(Cut::threads % parts<count> == 0, "the same entries of all of them");
    const int d = threadIdx.x % parts<count> * count;
    const bool has = d < Cut::C - step * Cut::depth;
    const T* source = has ? from + (step * Cut::depth + d) * column : from;
    T* const target = panel + Panel::place(own<count>(), d);
    UNROLLED for (int n = 0; n < Panel::size; n += together) {
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
    UNROLLED for (int e = 0; e < Cut::depth; e += together) {
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

  // Begins to copy the next two panels, if any, and ends a batch of copies.
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
        if (fibre_words) copy_fibres<pack>(panel);
        else copy_fibres<1>(panel);
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

}  // namespace batchkron
