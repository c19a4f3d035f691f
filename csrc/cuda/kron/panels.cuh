// kron_panels: y = alpha (I_L (x) A (x) I_R) x + beta previous for one factor of any size
// (contract: cuda/kron/arguments.cuh). A fibre is the C entries x[l, :, r]. A thread block computes
// a tile of `fibres` fibres by `results` rows of the factor, as a matrix product: panels, which are
// `depth` entries of each of these fibres and rows, follow one another through shared memory, so
// that neither has to fit there.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron/panel_copies.cuh"
#include "cuda/kron/panel_sums.cuh"

namespace batchkron {

template <class T, class Cut>
struct PanelKernel {
  using Arguments = KronArguments<T, 1>;
  using Layout = Panels<T, Cut>;
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = (Cut::K + Cut::results - 1) / Cut::results;  // tiles of a fibre

  using Sums = PanelSums<T, Cut>;
  static constexpr int together = Sums::together;  // neighbouring elements of y that a thread has
  // Elements of `previous` that a thread reads before it writes any of y; chosen by hand.
  static constexpr int kBatch = 8;
  struct alignas(together * sizeof(T)) Word {
    T values[together];
  };

  // Where a thread's fibres begin in y, if R is not 1. One 64-bit division by R serves all of them.
  template <int pieces>
  struct Begins {
    Index at[Cut::along ? 1 : Sums::fibre_groups][pieces];

    __device__ Begins(const Arguments& a, Index first, const Sums& sums) {
      if constexpr (!Cut::along) {
        const Index slice = first / a.R, rest = first % a.R;
        UNROLLED for (int v = 0; v < Sums::fibre_groups; ++v)
          UNROLLED for (int n = 0; n < pieces; ++n) {
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

  // Writes the sums of a tile to y. A thread reads some of `previous` before it writes any of y:
  // previous may be y, so that otherwise each load would wait for the store before it.
  template <bool words>
  __device__ static void store(const Arguments& a, Index tile, const Sums& sums) {
    constexpr int groups = Sums::fibre_groups * Sums::result_groups, batch = kBatch / together;
    constexpr int pieces = words ? 1 : together;  // stores for neighbouring elements
    const Index first = tile / across * Cut::fibres, left = a.L * a.R - first;
    const int first_result = int(tile % across) * Cut::results;
    const Begins<pieces> begins(a, first, sums);
    const auto place = [&](int group, int n) {  // offset in y; -1 beyond the edge
      const int v = group / Sums::result_groups, fibre = sums.fibre(v);
      const int result = first_result + sums.result(group % Sums::result_groups);
      if constexpr (Cut::along)
        return fibre < left && result + n < Cut::K
                   ? first * Cut::K + fibre * Cut::K + result + n
                   : -1;
      else
        return fibre + n < left && result < Cut::K ? begins.at[v][n] + result * a.R : -1;
    };
    UNROLLED for (int e = 0; e < groups; e += batch) {
      Word old[batch];
      if (a.previous) {
        UNROLLED for (int g = 0; g < batch && e + g < groups; ++g)
          UNROLLED for (int n = 0; n < pieces; ++n) {
            const Index at = place(e + g, n);
            if constexpr (words)
              old[g] = at < 0 ? Word{} : *reinterpret_cast<const Word*>(a.previous + at);
            else
              old[g].values[n] = at < 0 ? T{} : a.previous[at];
          }
      }
      UNROLLED for (int g = 0; g < batch && e + g < groups; ++g) {
        Word word;
        UNROLLED for (int i = 0; i < together; ++i) {
          const T value = sums.at((e + g) / Sums::result_groups, (e + g) % Sums::result_groups, i);
          word.values[i] = multiply(a.alpha, value);
          if (a.previous)
            word.values[i] = multiply_add(word.values[i], a.beta, old[g].values[i]);
        }
        UNROLLED for (int n = 0; n < pieces; ++n) {
          const Index at = place(e + g, n);
          if (at < 0) continue;
          if constexpr (words) *reinterpret_cast<Word*>(a.y + at) = word;
          else a.y[at] = word.values[n];
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
    UNROLLED for (int s = 0; s < Cut::stages - 1; ++s) copies.next(tiles);
    PanelSums<T, Cut> sums(threadIdx.x);
    int stage = 0;
    UNROLLED_BY(1) for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      UNROLLED_BY(1) for (int step = 0; step < Cut::steps; ++step) {
        wait_for_copies<Cut::stages - 2>();
        __syncthreads();
        const T* const panel = shared + stage * Layout::stage;
        sums.add(panel, panel + Layout::Fibres::elements, [&] { copies.next(tiles); });
        stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      }
      if (words) store<true>(a, tile, sums);
      else store<false>(a, tile, sums);
      sums.clear();
    }
  }
};

template <class T, class Cut>
__global__ void __launch_bounds__(Cut::threads, Cut::blocks)
    kron_panels(const KronArguments<T, 1> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  PanelKernel<T, Cut>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
