// batched_units: a batch list (contract: cuda/batch/list.cuh) of real elements without identities,
// each product by one to four warps on matrix units of double precision.
//
// A block is (split, H, slow, fast). `slow` and `fast` are the last modes: each is one of up to 8
// entries, one of up to 16, or two of 4 as their Kronecker product. A slice X (slow, fast) becomes
// F_slow X F_fast^T. The first multiply computes F_fast X^T, and a lane then has in registers
// exactly its part of the fragment for the second one. So a block goes from memory through
// registers to the sums of its output without any exchange between lanes. The mode H (1 entry
// if there is none) is multiplied in each lane. Of the split mode each of `split` warps reads all
// entries and computes one result.
#pragma once

#include "cuda/batch/unit_multiply.cuh"
#include "cuda/common/launch_order.cuh"

namespace batchkron {

// A group is one warp for each result of the split mode. groups_per_output: groups that share the
// products of an output; outputs: outputs of a thread block; chunk: entries of the H mode loaded at
// a time.
template <int groups_per_output_, int outputs_, int chunk_>
struct UnitCut {
  static constexpr int groups_per_output = groups_per_output_, outputs = outputs_, chunk = chunk_;
};

// The matrix of the H mode: each warp has places in shared memory for those of two products, used
// in turn. Rows are padded to whole words of 16 bytes.
template <class T, class Mode>
struct StagedMode {
  static constexpr int n = Mode::n, pitch = (n + 1) / 2 * 2, elements = n == 1 ? 0 : n * pitch;
  static constexpr int width = n % 2 == 0 ? 2 : 1;  // elements that a lane reads at a time
  static constexpr int parts = n == 1 ? 0 : n * n / width, turns = (parts + 31) / 32;
  double* base;
  T held[turns == 0 ? 1 : turns][width];

  template <class Factors>
  __device__ void load(const Factors& factors, int lane) {
    if constexpr (n > 1) {
      const T* const source = factors.template at<Mode::step>();
      UNROLLED for (int i = 0; i < turns; ++i) {
        const int part = i * 32 + lane;
        if (part < parts) load_elements<width>(source + width * part, held[i]);
      }
    }
  }
  __device__ void stage(int which, int lane) const {
    if constexpr (n > 1) {
      UNROLLED for (int i = 0; i < turns; ++i) {
        const int first = (i * 32 + lane) * width;
        if (first < n * n)
          UNROLLED for (int j = 0; j < width; ++j)
            base[which * elements + first / n * pitch + first % n + j] = held[i][j];
      }
      __syncwarp();
    }
  }
  // sums[k] += f(c, k) results
  template <int halves>
  __device__ void add_to(double (&sums)[n][halves][2 * halves], int which, int c,
                         const double (&results)[halves][2 * halves]) const {
    UNROLLED for (int k = 0; k < n; k += 2) {
      double entries[2];
      load_elements<2>(base + which * elements + c * pitch + k, entries);
      UNROLLED for (int j = 0; j < 2 && k + j < n; ++j)
        UNROLLED for (int h = 0; h < halves; ++h)
          UNROLLED for (int i = 0; i < 2 * halves; ++i)
            sums[k + j][h][i] += entries[j] * results[h][i];
    }
  }
};

// Which of two tiles has the first chunk of a product, as a constant at compile time: with an index
// known at run time only, the tiles would lie in local memory in place of registers.
template <int value_>
struct Turn {
  static constexpr int value = value_;
};

// Adds the sums of an output's groups, in their order, and writes them to output block `block` of y.
// All threads of a thread block call it; behind it `memory`, shared memory, is free for other use.
template <class Cut, int split, class Slow, class Fast, class T, int steps, int n, int halves>
__device__ void write_unit_sums(const RegisterBatchArguments<T, steps>& a, Index block,
                                bool active, double* memory, UnitLane lane,
                                const double (&sums)[n][halves][2 * halves]) {
  using Multiply = UnitMultiply<Slow, Fast>;
  constexpr int groups_per_output = Cut::groups_per_output;
  constexpr int slice = Slow::outputs * Fast::outputs, size = split * n * slice;
  constexpr int output_threads = groups_per_output * split * 32;
  const int warp = threadIdx.x / 32, part = warp % split, member = warp / split % groups_per_output;
  // calls visit(i, sum) for each of the lane's sums, which is element i of the output block
  const auto each_sum = [&](auto visit) {
    UNROLLED for (int k = 0; k < n; ++k)
      UNROLLED for (int h = 0; h < halves; ++h)
        UNROLLED for (int f = 0; f < halves; ++f)
          UNROLLED for (int p = 0; p < 2; ++p) {
            if (Multiply::has(h, f, p, lane))
              visit((part * n + k) * slice + Multiply::place(h, f, p, lane), sums[k][h][2 * f + p]);
          }
  };
  T* const target = a.y + block * size;
  const auto write = [&](int i, double sum) {
    sum *= a.alpha;
    target[i] = T(a.accumulate ? target[i] + sum : sum);
  };
  if constexpr (groups_per_output == 1) {
    if (active) each_sum(write);
    __syncwarp();  // the staged matrices have been read
  } else {
    double* const parts = memory + warp / (groups_per_output * split) * groups_per_output * size;
    __syncthreads();  // the staged matrices have been read
    each_sum([&](int i, double sum) { parts[member * size + i] = sum; });
    __syncthreads();
    for (int i = threadIdx.x % output_threads; active && i < size; i += output_threads) {
      double sum = parts[i];
      UNROLLED for (int other = 1; other < groups_per_output; ++other)
        sum += parts[other * size + i];
      write(i, sum);
    }
    __syncthreads();  // the sums have been read
  }
}

// A group takes every groups_per_output-th product of its output and adds these in the list's order;
// then the groups' sums are added in the order of the groups: the same bits from run to run. While a
// chunk is multiplied, the next one and the next product's matrices are being loaded to registers.
template <class T, class Layout, class Cut, bool short_ids, class Split, class H, class Slow,
          class Fast>
__global__ void __launch_bounds__(32 * Cut::groups_per_output* Split::n* Cut::outputs)
    batched_units(const RegisterBatchArguments<T, Layout::steps> a) {
  wait_for_earlier_kernels();
  using Record = HeldRecord<Layout::steps, short_ids>;
  using Factors = PoolFactors<T, Layout, Record, false>;
  constexpr int groups_per_output = Cut::groups_per_output, split = Split::n;
  constexpr int chunk = Cut::chunk, chunks = H::n / chunk;
  constexpr int halves = Slow::halves, slice = Slow::inputs * Fast::inputs;
  constexpr int part_size = H::n * slice;
  constexpr int stride = chunk > 1 ? 2 : 1;  // slices that are multiplied together
  static_assert(H::n % chunk == 0 && (chunks == 1 || chunks % 2 == 0), "whole chunks in turn");
  using Tile = UnitTile<T, Slow, Fast, chunk>;
  using Multiply = UnitMultiply<Slow, Fast>;
  using Results = double[halves][2 * halves];
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const memory = reinterpret_cast<double*>(shared_memory);

  const int warp = threadIdx.x / 32, thread = threadIdx.x % 32, part = warp % split;
  const UnitLane lane{thread / 4, thread % 4};
  const Index output = Index(blockIdx.x) * Cut::outputs + warp / (groups_per_output * split);
  const bool active = output < a.num_outputs;
  const Index begin = active ? a.starts[output] + warp / split % groups_per_output : 0;
  const Index left = active ? a.starts[output + 1] - begin : 0;
  const int count = active ? int((left + groups_per_output - 1) / groups_per_output) : 0;
  const bool weighted = !*a.unit_weights;
  const int* const list = a.list + begin * Record::size;
  const auto record_of = [&](int round) {
    return Record::load(list + Index(round < count ? round : 0) * groups_per_output * Record::size);
  };

  for (Index e = blockIdx.y; e < a.outer; e += gridDim.y) {
    const Index system = a.systems == 1 ? 0 : e % a.systems;
    const T* const x = a.x + e * a.num_inputs * split * part_size;
    Results sums[H::n] = {};

    if (count > 0) {
      StagedMode<T, H> staged{memory + warp * 2 * StagedMode<T, H>::elements};
      Slow slow;
      Fast fast;
      T shares[split];
      Tile tiles[split > 1 ? 1 : 2][split];  // mixed ones are not needed later
      const auto load_factors = [&](const Record& record) {
        const Factors factors{a.pools, system, record};
        slow.load(factors, lane);
        fast.load(factors, lane);
        staged.load(factors, thread);
        if constexpr (split > 1) {
          UNROLLED for (int c = 0; c < split; ++c)
            shares[c] = factors.template at<Split::step>()[c * split + part];
        }
      };
      const auto load_chunk = [&](const T* block, int place, Tile(&to)[split]) {
        UNROLLED for (int c = 0; c < split; ++c)
          to[c].load(block + c * part_size + place * chunk * slice, lane);
      };
      const Record first = record_of(0);
      Record next = record_of(1);
      const T* block = x + Index(first.input()) * split * part_size;
      load_chunk(block, 0, tiles[0]);
      load_factors(first);

      const auto add_chunk = [&](int round, int first, const Multiply& multiply, const auto& tile) {
        if constexpr (H::n == 1) {
          multiply.add_to(sums, tile.x, lane);
          return;
        }
        UNROLLED for (int j = 0; j + stride <= chunk; j += stride) {
          Results results[stride] = {};
          if constexpr (Multiply::takes_two && stride == 2)
            multiply.multiply_two(results[0], results[1], tile.x[j], tile.x[j + 1], lane);
          else
            multiply.add_to(results, tile.x + j, lane);
          UNROLLED for (int i = 0; i < stride; ++i)
            staged.add_to(sums, round % 2, first + j + i, results[i]);
        }
        if constexpr (chunk % stride != 0) {
          Results last[1] = {};
          multiply.add_to(last, tile.x + chunk - 1, lane);
          staged.add_to(sums, round % 2, first + chunk - 1, last[0]);
        }
      };
      // adds one product, whose first chunk is in tiles[turn]
      const auto add_product = [&](int round, auto turn) {
        Multiply multiply(slow, fast);
        if (weighted)
          multiply.scale(
              a.weights[system * a.weight_system + begin + Index(round) * groups_per_output], lane);
        double own[split];
        UNROLLED for (int c = 0; c < split; ++c) own[c] = shares[c];
        staged.stage(round % 2, thread);
        const T* const following = x + Index(next.input()) * split * part_size;
        load_factors(next);
        next = record_of(round + 2);
        UNROLLED for (int i = 0; i < chunks; ++i) {
          constexpr int first_turn = decltype(turn)::value;
          const int now = split > 1 ? 0 : (first_turn + i) % 2, then = split > 1 ? 0 : 1 - now;
          const auto load_next = [&] {
            load_chunk(i + 1 < chunks ? block : following, (i + 1) % chunks, tiles[then]);
          };
          if constexpr (split > 1) {
            UnitTile<double, Slow, Fast, chunk> mixed;
            mixed.mix(own, tiles[0], lane);
            load_next();
            add_chunk(round, i * chunk, multiply, mixed);
          } else {
            load_next();
            add_chunk(round, i * chunk, multiply, tiles[now][0]);
          }
        }
        block = following;
      };
      if constexpr (split > 1 || chunks % 2 == 0) {
        for (int round = 0; round < count; ++round) add_product(round, Turn<0>{});
      } else {
        for (int round = 0; round < count; round += 2) {
          add_product(round, Turn<0>{});
          if (round + 1 < count) add_product(round + 1, Turn<1>{});
        }
      }
    }
    write_unit_sums<Cut, split, Slow, Fast>(a, e * a.num_outputs + output, active, memory, lane, sums);
  }
}

}  // namespace batchkron
