// One mode of a tile, multiplied in place on matrix units of double precision, by fragments of 16
// fibres by 8 results by 4 entries. Elements of single precision are converted when they are read,
// and results are rounded once when they are written.
#pragma once

#include "cuda/common/matrix_units.cuh"
#include "cuda/kron/fibres/multiply.cuh"

namespace batchkron {

// Which elements of a fragment a lane has (see multiply_16_8_4): rows of a are fibres, b is the
// factor.
template <class T, class Pass>
struct Fragments {
  static constexpr int halves = Pass::rows, blocks = halves / 2, fibres = 8 * halves;
  static constexpr int steps = (Pass::C + 3) / 4, tiles = (Pass::K + 7) / 8;
  static constexpr int sharers = Pass::split > 0 ? Pass::split : 1;  // warps that share the results
  static constexpr int mine = (tiles + sharers - 1) / sharers;       // tiles of 8 results of a warp
  static constexpr bool whole = 8 * mine * sharers == Pass::K;       // whether all results exist
  static constexpr bool ragged = Pass::Fibres::size % fibres != 0;
  static_assert(halves % 2 == 0 && Pass::across <= 2, "whole fragments");

  // The result that column n of b stands for, so that a warp writes whole words, or to different
  // banks.
  __device__ static int result(int n) { return Pass::along ? n : n / 2 + n % 2 * 4; }

  // The factor's element that a lane has of a fragment, counted from the fragment's first one.
  __device__ static Spot spot(int lane) { return {result(lane / 4), lane % 4}; }

  // The fibre that row lane / 4 + 8 h stands for: a lane's first one, plus on(h).
  __device__ static int own(int lane) { return lane / 4 * Pass::across; }
  __device__ static constexpr int on(int h) {
    return Pass::across == 2 ? h / 2 * 16 + h % 2 : 8 * h;
  }
  __device__ static int fibre(int lane, int h) { return own(lane) + on(h); }
  __device__ static bool inside(int first, int lane, int h) {
    return !ragged || first + fibre(lane, h) < Pass::Fibres::size;
  }
  // Whether the distances between a lane's fibres in shared memory are the same for all lanes.
  static constexpr bool steady =
      !ragged && Pass::Fibres::adds(8 * Pass::across) && Pass::Fibres::adds(fibres);

  // Reads the fibres of a warp from a tile.
  struct Rows {
    const T* begin[steady ? 1 : halves];
    int column;
    bool inside[halves];

    __device__ Rows(const T* tile, int first, int lane) : column(lane % 4) {
      UNROLLED for (int h = 0; h < halves; ++h) {
        inside[h] = Fragments::inside(first, lane, h);
        if (h == 0 || !steady)
          begin[h] = settled(tile + column * Pass::stride +
                             (inside[h] ? Pass::Fibres::place(first + fibre(lane, h)) : 0));
      }
    }

    // Reads entries 4 step ... 4 step + 3 of each fibre, one for each lane; zeros beyond C.
    __device__ void read(int step, double (&a)[halves]) const {
      using Word = Elements<T, Pass::across>;
      UNROLLED for (int h = 0; h < halves; h += Pass::across) {
        const T* const row = steady ? begin[0] + Pass::Fibres::place(on(h)) : begin[h];
        Word word{};
        if (inside[h] && (4 * step + 3 < Pass::C || 4 * step + column < Pass::C))
          word = *reinterpret_cast<const Word*>(row + 4 * step * Pass::stride);
        UNROLLED for (int j = 0; j < Pass::across; ++j) a[h + j] = word.values[j];
      }
    }
  };

  // Writes the results of a warp's fibres.
  template <class Target>
  struct Writer {
    const Target& target;
    typename Target::Place places[steady ? 1 : halves];
    int first, lane;
    bool has[halves];

    // k: the number of the first result
    __device__ Writer(const Target& to, int first_fibre, int own_lane, int k)
        : target(to), first(first_fibre), lane(own_lane) {
      UNROLLED for (int h = 0; h < halves; ++h) {
        has[h] = inside(first, lane, h) && target.has(first + fibre(lane, h));
        if (h == 0 || !steady)
          places[h] = target.place(steady || has[h] ? first + fibre(lane, h) : 0) +
                      target.entry(k + result(2 * (lane % 4)));
      }
    }

    // Goes on to the results that are so many behind.
    __device__ void go_on(int results) {
      UNROLLED for (int h = 0; h < (steady ? 1 : halves); ++h) places[h] += target.entry(results);
    }

    // Writes `count` tiles of 8 results, of which k is the first.
    template <int count>
    __device__ void write(double (&sums)[count][blocks][4], int k) const {
      write_results(
          target, [&](auto all, auto use) { each<decltype(all)::value>(sums, k, use); });
    }

   private:
    template <bool all, int count, class Use>
    __device__ void each(double (&sums)[count][blocks][4], int k, Use use) const {
      const int column = lane % 4;
      UNROLLED for (int u = 0; u < count; ++u)
        UNROLLED for (int h = 0; h < halves; h += Pass::along ? 1 : Pass::across) {
          double(&four)[4] = sums[u][h / 2];
          if (!all && !has[h]) continue;
          const int fibre_number = first + fibre(lane, h);
          const auto place = steady ? places[0] + target.place(on(h)) : places[h];
          if constexpr (Pass::along) {
            const bool present = exists(k + 8 * u + 2 * column);
            if (!all && !present) continue;
            T values[] = {T(four[h % 2 * 2]), T(four[h % 2 * 2 + 1])};
            use(has[h] && present, place + target.entry(8 * u), fibre_number, values);
            four[h % 2 * 2] = values[0];
            four[h % 2 * 2 + 1] = values[1];
          } else {
            UNROLLED for (int i = 0; i < 2; ++i) {
              const bool present = exists(k + 8 * u + column + 4 * i);
              if (!all && !present) continue;
              T values[Pass::across];
              UNROLLED for (int n = 0; n < Pass::across; ++n)
                values[n] = T(four[(h % 2 + n) * 2 + i]);
              use(has[h] && present, place + target.entry(8 * u + 4 * i), fibre_number, values);
              UNROLLED for (int n = 0; n < Pass::across; ++n) four[(h % 2 + n) * 2 + i] = values[n];
            }
          }
        }
    }
    __device__ static bool exists(int k) { return whole || k < Pass::K; }
  };
};

// Double precision: a warp holds its fibres whole in registers and computes Pass::columns tiles of
// eight results at a time, with the factor from shared memory.
template <class Pass>
struct FibreMultiply<double, Pass, false> {
  using Held = NothingHeld;
  using F = Fragments<double, Pass>;
  static constexpr int together = Pass::columns;
  static constexpr int elements = F::tiles * F::steps * 32;  // of shared memory for the factor
  static_assert(F::tiles % together == 0, "whole fragments");

  __device__ static void stage(const Factor<double>& factor, double* target, int threads) {
    const int lane = threadIdx.x % 32;
    stage_patches<Pass::K, Pass::C>(
        factor, F::tiles * F::steps, threads, F::spot(lane),
        [](int patch) { return Spot{patch / F::steps * 8, patch % F::steps * 4}; },
        [&](int patch) { return target + (patch * 32 + lane); });
  }
  __device__ static void finish(double*, int) {}

  template <class Target>
  __device__ static void run(const Held&, const double* tile, const double* factor, int thread,
                             int threads, const Target& target) {
    const int warps = threads / 32;
    if (thread / 32 >= items) target.release();
    UNROLLED_BY(1) for (int item = thread / 32; item < items; item += warps)
      multiply(tile, factor, item * F::fibres, thread % 32, item + warps >= items, target);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + F::fibres - 1) / F::fibres;

  template <class Target>
  __device__ static void multiply(const double* tile, const double* factor, int first, int lane,
                                  bool last, const Target& target) {
    double a[F::steps][F::halves];
    const typename F::Rows rows(tile, first, lane);
    UNROLLED for (int s = 0; s < F::steps; ++s) rows.read(s, a[s]);
    __syncwarp();
    if (last) target.release();
    typename F::template Writer<Target> writer(target, first, lane, 0);
    UNROLLED_BY(1) for (int t = 0; t < F::tiles; t += together) {
      double sums[together][F::blocks][4] = {};
      UNROLLED for (int s = 0; s < F::steps; ++s)
        UNROLLED for (int u = 0; u < together; ++u) {
          const double b = factor[((t + u) * F::steps + s) * 32 + lane];
          UNROLLED for (int m = 0; m < F::blocks; ++m)
            multiply_16_8_4(sums[u][m], a[s][2 * m], a[s][2 * m + 1], b);
        }
      writer.write(sums, 8 * t);
      writer.go_on(8 * together);
    }
    __syncwarp();
  }
};

// The same where the factor is too large for shared memory: each warp of a thread group keeps some
// columns of b (results) in registers, and all warps read all fibres, Pass::rows × 8 at a time.
template <class T, class Pass>
struct FibreMultiply<T, Pass, true> {
  using F = Fragments<T, Pass>;
  static constexpr int mine = F::mine;
  static constexpr int elements = 0;  // in shared memory

  struct Held {
    double b[mine][F::steps];

    __device__ Held(const Factor<T>& factor, int thread) {
      const Spot own = F::spot(thread % 32);
      const int first = thread / 32 * (8 * mine) + own.k;
      const T* const data = factor.data + (first * factor.row + own.c * factor.column);
      UNROLLED for (int u = 0; u < mine; ++u)
        UNROLLED for (int s = 0; s < F::steps; ++s) {
          const bool exists = (F::whole || first + 8 * u < Pass::K) &&
                              (4 * s + 3 < Pass::C || 4 * s + own.c < Pass::C);
          b[u][s] = exists ? data[8 * u * factor.row + 4 * s * factor.column] : T(0);
        }
    }
  };

  __device__ static void stage(const Factor<T>&, T*, int) {}
  __device__ static void finish(T*, int) {}

  template <class Target>
  __device__ static void run(const Held& held, const T* tile, const T*, int thread, int,
                             const Target& target) {
    const int lane = thread % 32, k = 8 * (thread / 32 * mine);
    UNROLLED_BY(1) for (int first = 0; first < Pass::Fibres::size; first += F::fibres) {
      const typename F::Rows rows(tile, first, lane);
      double sums[mine][F::blocks][4] = {};
      UNROLLED for (int s = 0; s < F::steps; ++s) {
        double a[F::halves];
        rows.read(s, a);
        UNROLLED for (int u = 0; u < mine; ++u)
          UNROLLED for (int m = 0; m < F::blocks; ++m)
            multiply_16_8_4(sums[u][m], a[2 * m], a[2 * m + 1], held.b[u][s]);
      }
      if constexpr (Target::in_tile) target.sync_group();
      if (first + F::fibres >= Pass::Fibres::size) target.release();
      typename F::template Writer<Target>(target, first, lane, k).write(sums, k);
    }
  }
};

}  // namespace batchkron
