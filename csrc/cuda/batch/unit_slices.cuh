// batched_unit_slices: a batch list (contract: cuda/batch/list.cuh) of three modes with square
// matrices, H of 8, 12 or 16 and slow, fast of 12 or 16, of real elements without identities, on
// matrix units of double precision. The warps of a thread block share a product.
//
// A block is (H, slow, fast). Each warp multiplies some slices X (slow, fast) to F_slow X F_fast^T
// as in cuda/batch/matrix_units.cuh, and writes the results to shared memory in the order in which
// lanes have them. A column is one element (slow, fast) of all slices: each warp then multiplies
// some of the columns along H and adds the results to sums of the output in registers.
#pragma once

#include "cuda/batch/unit_multiply.cuh"
#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/launch_order.cuh"

namespace batchkron {

// The multiplied slices in shared memory. The elements at one place of all slices are a column of
// the multiply along H, of which a lane has every fourth entry.
template <class H, class Slow, class Fast>
struct UnitSlices {
  using Multiply = UnitMultiply<Slow, Fast>;
  // Lanes that have results are rows x columns, each with 8 of the `size` elements of a slice. The
  // pitch, elements from slice to slice, keeps what lanes read together in different banks.
  static constexpr int rows = Slow::outputs / 2, columns = Fast::outputs / 4;
  static constexpr int lanes = rows * columns, size = 8 * lanes, eights = lanes;
  static constexpr int pitch = size + 4, elements = H::n * pitch;
  static_assert(Slow::halves == 2 && size % 16 == 0, "two halves of results");
  struct alignas(16) Pair {
    double values[2];
  };

  // Where a lane's first result is in the first slice.
  __device__ static int first_result(UnitLane lane) {
    return 2 * (lane.row * columns + lane.column);
  }
  // Writes a lane's results from there on, each two neighbours as one word.
  __device__ static void write(double* to, UnitLane lane, const typename Multiply::Sums& results) {
    if (lane.row >= rows || lane.column >= columns) return;
    UNROLLED for (int i = 0; i < 4; ++i)
      *reinterpret_cast<Pair*>(to + i * 2 * lanes) = {results[i / 2][i % 2 * 2],
                                                      results[i / 2][i % 2 * 2 + 1]};
  }
  // Where a lane's first entry of the first eight columns is.
  __device__ static int first_entry(UnitLane lane) { return lane.column * pitch + lane.row; }
  // Which element of an output slice (slow, fast) a column is.
  __device__ static int place(int column) {
    const int pair = column / 2, i = pair / lanes, lane = pair % lanes;
    return Multiply::place(i / 2, i % 2, column % 2, {lane / columns, lane % columns});
  }
};

// The matrices of a product in shared memory: [entry][result], each row padded by a word of 16
// bytes so that neighbouring lanes read different banks.
template <class T, class H, class Slow, class Fast>
struct UnitMatrices {
  static constexpr int word = 16 / int(sizeof(T));  // elements
  static constexpr int pitch(int n) { return n + word; }
  static constexpr int slow = H::n * pitch(H::n);  // where the matrix of the slow mode begins
  static constexpr int fast = slow + Slow::inputs * pitch(Slow::outputs);
  static constexpr int elements = fast + Fast::inputs * pitch(Fast::outputs);

  // Begins to copy them; called by all threads of a thread block.
  template <int threads, class Factors>
  __device__ static void copy(T* memory, const Factors& factors) {
    copy_one<threads, H::n>(memory, factors.template at<H::step>());
    copy_one<threads, Slow::outputs>(memory + slow, factors.template at<Slow::step>());
    copy_one<threads, Fast::outputs>(memory + fast, factors.template at<Fast::step>());
  }

 private:
  template <int threads, int n>
  __device__ static void copy_one(T* to, const T* from) {
    constexpr int words = n / word;  // words of a row
    UNROLLED for (int i = 0; i < n * words; i += threads) {
      const int own = i + int(threadIdx.x);
      if (i + threads <= n * words || own < n * words)
        copy_asynchronously<16, true>(to + own / words * pitch(n) + own % words * word,
                                      from + own * word);
    }
  }
};

// A lane's part of the matrix of H: entries 4 s + lane.column by results 2 lane.row and the next
// one; beyond n, the last two results again.
template <class T, class H>
struct SliceMode {
  static constexpr int n = H::n, steps = n / 4;
  T entries[(steps + 1) / 2][4];  // [steps 2 i and 2 i + 1][step, result]

  __device__ void load(const T* matrix, int pitch, UnitLane lane) {
    UNROLLED for (int s = 0; s < steps; ++s) {
      const T* const entry = matrix + (4 * s + lane.column) * pitch;
      const int row = lane.row < n / 2 ? lane.row : n / 2 - 1;
      load_elements<2>(entry + 2 * row, entries[s / 2] + s % 2 * 2);
    }
  }
  // sums += F_H Z for eight columns Z, of which the lane's first entry is at `first`
  template <class Slices>
  __device__ void add_to(double (&sums)[4], const double* first) const {
    double x[steps];
    UNROLLED for (int s = 0; s < steps; ++s) x[s] = first[4 * s * Slices::pitch];
    UNROLLED for (int i = 0; i < steps / 2; ++i) {
      const T(&own)[4] = entries[i];
      const double a[] = {own[0], own[1], own[2], own[3]};
      multiply_16_8_8(sums, a, x + 2 * i);
    }
    if constexpr (steps == 3) multiply_16_8_4(sums, entries[1][0], entries[1][1], x[2]);
  }
};

// A thread block adds the products of an output in the list's order: the same bits from run to run.
// While a product is multiplied, the slices of the next one are being loaded to registers, and the
// matrices of the next two to shared memory.
template <class T, class Layout, int warps, int blocks, bool short_ids, class H, class Slow,
          class Fast>
__global__ void __launch_bounds__(32 * warps, blocks)
    batched_unit_slices(const RegisterBatchArguments<T, Layout::steps> a) {
  wait_for_earlier_kernels();
  using Record = HeldRecord<Layout::steps, short_ids>;
  using Factors = PoolFactors<T, Layout, Record, false>;
  using Slices = UnitSlices<H, Slow, Fast>;
  using Matrices = UnitMatrices<T, H, Slow, Fast>;
  using Tile = UnitTile<T, Slow, Fast, H::n / warps>;
  using Multiply = UnitMultiply<Slow, Fast>;
  constexpr int slice = Slow::inputs * Fast::inputs, size = H::n * slice, own = H::n / warps;
  constexpr int some = own % 2 == 0 ? 2 : 1;  // slices that are multiplied together
  constexpr int turns = (Slices::eights + warps - 1) / warps;
  static_assert(H::n % warps == 0, "as many slices for each warp");
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const memory = reinterpret_cast<double*>(shared_memory);

  const int warp = threadIdx.x / 32;
  const UnitLane lane{int(threadIdx.x) % 32 / 4, int(threadIdx.x) % 4};
  const Index output = blockIdx.x, begin = a.starts[output];
  const int count = int(a.starts[output + 1] - begin);
  const bool weighted = !*a.unit_weights;
  const int* const list = a.list + begin * Record::size;
  const auto record_of = [&](int round) {
    return Record::load(list + Index(round < count ? round : 0) * Record::size);
  };
  const auto matrices_of = [&](int round) {
    return reinterpret_cast<T*>(memory + 2 * Slices::elements) + round % 3 * Matrices::elements;
  };

  for (Index e = blockIdx.y; e < a.outer; e += gridDim.y) {
    const Index system = a.systems == 1 ? 0 : e % a.systems;
    const T* const x = a.x + e * a.num_inputs * size + warp * own * slice;
    double sums[turns][4] = {};

    if (count > 0) {
      Tile tile;
      Record next = record_of(1), later = record_of(2);
      {
        const Record first = record_of(0);
        tile.load(x + Index(first.input()) * size, lane);
        Matrices::template copy<32 * warps>(matrices_of(0), Factors{a.pools, system, first});
        Matrices::template copy<32 * warps>(matrices_of(1), Factors{a.pools, system, next});
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
      }
      double* const results_of = memory + warp * own * Slices::pitch + Slices::first_result(lane);
      const double* const entries_of = memory + 8 * warp + Slices::first_entry(lane);
      for (int round = 0; round < count; ++round) {
        const int place = round % 2 * Slices::elements;
        const T* const following = x + Index(next.input()) * size;
        {
          Slow slow;
          Fast fast;
          slow.load(matrices_of(round) + Matrices::slow, Matrices::pitch(Slow::outputs), lane);
          fast.load(matrices_of(round) + Matrices::fast, Matrices::pitch(Fast::outputs), lane);
          Multiply multiply(slow, fast);
          if (weighted) multiply.scale(a.weights[system * a.weight_system + begin + round], lane);
          UNROLLED for (int i = 0; i < own; i += some) {
            typename Multiply::Sums results[some] = {};
            multiply.add_to(results, tile.x + i, lane);
            UNROLLED for (int j = i; j < i + some; ++j) {
              Tile::load_slice(following + j * slice, lane, tile.x[j]);
              Slices::write(results_of + place + j * Slices::pitch, lane, results[j - i]);
            }
          }
        }
        wait_for_copies<0>();
        __syncthreads();  // slices of this round are written, those of the round before are read
        Matrices::template copy<32 * warps>(matrices_of(round + 2), Factors{a.pools, system, later});
        commit_copies();
        next = later;
        later = record_of(round + 3);
        SliceMode<T, H> leading;
        leading.load(matrices_of(round), Matrices::pitch(H::n), lane);
        UNROLLED for (int turn = 0; turn < turns; ++turn) {
          if (Slices::eights % warps == 0 || turn * warps + warp < Slices::eights)
            leading.template add_to<Slices>(sums[turn], entries_of + place + 8 * turn * warps);
        }
      }
      wait_for_copies<0>();
      __syncthreads();  // all slices have been read
    }

    T* const target = a.y + (e * a.num_outputs + output) * size;
    UNROLLED for (int turn = 0; turn < turns; ++turn) {
      const int eight = turn * warps + warp;
      if (2 * lane.row >= H::n || eight >= Slices::eights) continue;
      UNROLLED for (int p = 0; p < 2; ++p) {
        const int in_slice = Slices::place(8 * eight + 2 * lane.column + p);
        UNROLLED for (int t = 0; t < 2; ++t) {
          T& to = target[(2 * lane.row + t) * slice + in_slice];
          const double sum = a.alpha * sums[turn][2 * t + p];
          to = T(a.accumulate ? to + sum : sum);
        }
      }
    }
  }
}

}  // namespace batchkron
