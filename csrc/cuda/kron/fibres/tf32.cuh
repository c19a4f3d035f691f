// One mode of a tile in single precision, multiplied in place on matrix units whose operands have
// significands of 11 bits (TF32) and whose sums are in single precision.
// With three products for each one, a number is split in two: high is x rounded to 11 bits, and low
// is x - high, which is exact; the units ignore its last bit. A product is high high + low high +
// high low. The two small products have sums of their own, because the units truncate a sum at
// every multiply-add instead of rounding it: so the large sum goes through fewer of them.
#pragma once

#include "cuda/common/matrix_units.cuh"
#include "cuda/kron/fibres/multiply.cuh"

namespace batchkron {

// A pass, as FibrePass. blocks: blocks of 16 fibres of a warp; sharers: warps that share the
// results of a fibre; products: multiply-adds in TF32 for each one in single precision, 1 or 3. A
// lane reads and writes pairs of neighbouring entries (along) or `across` neighbouring fibres: with
// single elements no layout of a tile avoids bank conflicts for two modes.
template <int C_, int K_, int stride_, int blocks_, int across_, bool along_, int sharers_,
          int products_, class Fibres_>
struct Tf32Pass {
  static constexpr int C = C_, K = K_, stride = stride_, blocks = blocks_, across = across_;
  static constexpr int sharers = sharers_, products = products_;
  static constexpr int split = 0;  // no factor is held in registers
  static constexpr bool along = along_;
  using Fibres = Fibres_;
};

// Fibres are the rows of a, the factor is b. A warp computes all sums of `blocks` × 16 fibres by
// its share of the results before it writes any.
template <int C, int K, int stride, int blocks, int across, bool along, int sharers, int products,
          class Fibres>
struct FibreMultiply<
    float, Tf32Pass<C, K, stride, blocks, across, along, sharers, products, Fibres>, false> {
  using Held = NothingHeld;
  static constexpr int halves = 2 * blocks, fibres = 16 * blocks, steps = (C + 7) / 8;
  static constexpr int tiles = ((K + 7) / 8 + sharers - 1) / sharers;  // of eight results, a warp's
  static constexpr int elements = sharers * tiles * steps * 64;  // by tile, step, lane, row of b
  static_assert(products == 1 || products == 3, "numbers of one part, or of two");
  static_assert(along ? stride == 1 && C % 2 == 0 && K % 2 == 0 && across == 1 : across <= 2,
                "pairs of entries or of fibres");

  // Which entry and result a row and column of a fragment b stand for, so that lanes read and write
  // different banks. along: rows t and t + 4 are entries 2 t and 2 t + 1 of eight, column n is
  // result n. Else row t is entry t, and column n is result n / 2, plus 4 if n is odd.
  __device__ static void stage(const Factor<float>& factor, float* target, int threads) {
    const int lane = threadIdx.x % 32, n = lane / 8, half = lane % 2;
    const Spot own = along ? Spot{n, lane / 2 % 4 * 2 + half}
                           : Spot{n / 2 + n % 2 * 4, lane / 2 % 4 + half * 4};
    stage_patches<K, C>(
        factor, elements / 32, threads, own,
        [](int patch) {
          const int tile = patch / 2 / steps, step = patch / 2 % steps;
          return Spot{8 * tile + patch % 2 * (along ? 4 : 2), 8 * step};
        },
        [&](int patch) { return target + (patch * 32 + lane); });
  }
  // With one product, rounds the factor's elements that this thread has copied to TF32.
  __device__ static void finish(float* target, int threads) {
    if constexpr (products == 1)
      for (int i = threadIdx.x; i < elements; i += threads)
        target[i] = __uint_as_float(nearest_tf32(target[i]));
  }

  template <class Target>
  __device__ static void run(const Held&, const float* tile, const float* factor, int thread,
                             int threads, const Target& target) {
    const int warp = thread / 32, lane = thread % 32, together = threads / 32 / sharers;
    const int share = warp % sharers, first_result = 8 * tiles * share;
    const float* const mine = factor + share * tiles * steps * 64 + 2 * lane;
    UNROLLED_BY(1) for (int begin = 0; begin < items; begin += together) {
      const int item = begin + warp / sharers;
      Sums sums = {};
      if (item < items) multiply(Rows(item, lane), tile, mine, sums);
      if constexpr (Target::in_tile && sharers > 1) target.sync_group();
      else __syncwarp();
      if (begin + together >= items) target.release();
      if (item < items) write(target, item, lane, first_result, sums);
    }
  }

 private:
  static constexpr int items = (Fibres::size + fibres - 1) / fibres;
  static constexpr bool ragged = Fibres::size % fibres != 0;
  using Sums = float[tiles][blocks][4];

  // The fibre that row lane / 4 + 8 h of the blocks of an item stands for.
  __device__ static int fibre(int item, int lane, int h) {
    const int row = across == 2 ? h / 2 * 16 + lane / 4 * 2 + h % 2 : lane / 4 + 8 * h;
    return item * fibres + row;
  }

  // Where a lane's fibres lie in a tile, and which of each four entries (along: of each eight, the
  // first of a pair) it has.
  struct Rows {
    int column, places[halves];
    bool inside[halves];

    __device__ Rows(int item, int lane) : column(along ? lane % 4 * 2 : lane % 4) {
      UNROLLED for (int h = 0; h < halves; h += across) {
        const int number = fibre(item, lane, h);
        inside[h] = !ragged || number < Fibres::size;
        places[h] = (inside[h] ? Fibres::place(number) : 0) + column * stride;
      }
    }
  };

  __device__ static void multiply(const Rows& rows, const float* tile, const float* factor,
                                  Sums& sums) {
    if constexpr (products == 1) {
      add_rounded<4>(rows, tile, factor, sums);
    } else {
      bool lost = false;
      Sums small = {};
      add_parts(rows, tile, factor, sums, small);
      UNROLLED for (int u = 0; u < tiles; ++u)
        UNROLLED for (int m = 0; m < blocks; ++m)
          UNROLLED for (int i = 0; i < 4; ++i) {
            sums[u][m][i] += small[u][m][i];
            lost |= sums[u][m][i] != sums[u][m][i];
          }
      if (__any_sync(~0u, lost)) restore(rows, tile, factor, sums);
    }
  }

  // The low part of an infinity is NaN, so that sums with an infinity became NaN. Such sums are
  // replaced by those of one product, which has no low parts.
  __device__ static void restore(const Rows& rows, const float* tile, const float* factor,
                                 Sums& sums) {
    Sums rounded = {};
    add_rounded<1>(rows, tile, factor, rounded);
    UNROLLED for (int u = 0; u < tiles; ++u)
      UNROLLED for (int m = 0; m < blocks; ++m)
        UNROLLED for (int i = 0; i < 4; ++i)
          if (sums[u][m][i] != sums[u][m][i]) sums[u][m][i] = rounded[u][m][i];
  }

  // The lane's four elements of each block: two fibres by two entries of step `step`; zeros beyond
  // the edges.
  __device__ static void load(const Rows& rows, const float* tile, int step,
                              float (&x)[blocks][4]) {
    UNROLLED for (int h = 0; h < halves; h += across) {
      float(&of_block)[4] = x[h / 2];
      if constexpr (along) {
        const int c = 8 * step;
        const bool read = rows.inside[h] && (c + 7 < C || c + rows.column < C);
        const Floats<2> pair = read ? floats_at<2>(tile + rows.places[h] + c) : Floats<2>{};
        of_block[h % 2] = pair.values[0];
        of_block[h % 2 + 2] = pair.values[1];
      } else {
        UNROLLED for (int i = 0; i < 2; ++i) {
          const int c = 8 * step + 4 * i;
          const bool read = rows.inside[h] && (c + 3 < C || c + rows.column < C);
          Floats<across> word{};
          if (read) word = floats_at<across>(tile + rows.places[h] + c * stride);
          UNROLLED for (int j = 0; j < across; ++j) of_block[h % 2 + j + 2 * i] = word.values[j];
        }
      }
    }
  }

  template <int unrolled>
  __device__ static void add_rounded(const Rows& rows, const float* tile, const float* factor,
                                     Sums& sums) {
    UNROLLED_BY(unrolled) for (int s = 0; s < steps; ++s) {
      float x[blocks][4];
      unsigned a[blocks][4];
      load(rows, tile, s, x);
      UNROLLED for (int m = 0; m < blocks; ++m)
        UNROLLED for (int i = 0; i < 4; ++i) a[m][i] = nearest_tf32(x[m][i]);
      UNROLLED for (int u = 0; u < tiles; ++u) {
        const Floats<2> f = floats_at<2>(factor + (u * steps + s) * 64);
        // with one product the factor was rounded when it was staged
        const unsigned b = products == 1 ? __float_as_uint(f.values[0]) : nearest_tf32(f.values[0]);
        const unsigned b4 =
            products == 1 ? __float_as_uint(f.values[1]) : nearest_tf32(f.values[1]);
        UNROLLED for (int m = 0; m < blocks; ++m) multiply_16_8_8(sums[u][m], a[m], b, b4);
      }
    }
  }

  // The sums of three products; `small` gets those with a low part. The factor's elements are split
  // here and not when they are staged: shared memory is then read half as often, and holds factors
  // twice as large.
  __device__ static void add_parts(const Rows& rows, const float* tile, const float* factor,
                                   Sums& sums, Sums& small) {
    UNROLLED_BY(4) for (int s = 0; s < steps; ++s) {
      float x[blocks][4];
      unsigned high[blocks][4], low[blocks][4];
      load(rows, tile, s, x);
      UNROLLED for (int m = 0; m < blocks; ++m)
        UNROLLED for (int i = 0; i < 4; ++i) {
          const Tf32Parts parts(x[m][i]);
          high[m][i] = parts.high;
          low[m][i] = parts.low;
        }
      UNROLLED for (int u = 0; u < tiles; ++u) {
        const Floats<2> f = floats_at<2>(factor + (u * steps + s) * 64);
        const Tf32Parts b(f.values[0]), b4(f.values[1]);
        UNROLLED for (int m = 0; m < blocks; ++m)
          multiply_16_8_8(small[u][m], low[m], b.high, b4.high);
        UNROLLED for (int m = 0; m < blocks; ++m)
          multiply_16_8_8(sums[u][m], high[m], b.high, b4.high);
        UNROLLED for (int m = 0; m < blocks; ++m)
          multiply_16_8_8(small[u][m], high[m], b.low, b4.low);
      }
    }
  }

  template <class Target>
  __device__ static void write(const Target& target, int item, int lane, int first_result,
                               Sums& sums) {
    write_results(target, [&](auto every, auto use) {
      each_result<decltype(every)::value>(target, item, lane, first_result, sums, use);
    });
  }

  template <bool every, class Target, class Use>
  __device__ static void each_result(const Target& target, int item, int lane, int first_result,
                                     Sums& sums, Use use) {
    const int first = first_result + (along ? lane % 4 * 2 : lane % 4);
    constexpr bool all = K == 8 * tiles * sharers;
    UNROLLED for (int h = 0; h < halves; h += across) {
      const int number = fibre(item, lane, h);
      const bool has = (!ragged || number < Fibres::size) && target.has(number);
      if (!every && !has) continue;
      const auto place = target.place(has ? number : 0) + target.entry(first);
      UNROLLED for (int u = 0; u < tiles; ++u) {
        float(&four)[4] = sums[u][h / 2];
        UNROLLED for (int i = 0; i < (along ? 1 : 2); ++i) {
          const int k = 8 * u + 4 * i;
          const bool present = all || first + k < K;
          if (!every && !present) continue;
          constexpr int count = along ? 2 : across;
          const auto sum = [&](int n) -> float& {
            return four[along ? h % 2 * 2 + n : (h % 2 + n) * 2 + i];
          };
          float values[count];
          UNROLLED for (int n = 0; n < count; ++n) values[n] = sum(n);
          use(has && present, place + target.entry(k), number, values);
          UNROLLED for (int n = 0; n < count; ++n) sum(n) = values[n];
        }
      }
    }
  }
};

}  // namespace batchkron
