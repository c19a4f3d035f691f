// batched_slices: a batch list (contract: cuda/batch/list.cuh) of small blocks, each thread with a
// slice of a product's block in registers.
//
// Along one mode, the split mode, a product is a sum over slices: that of slice x[..., c, ...],
// multiplied along the other modes, times the matrix's elements for input index c. Thread c of a
// product computes this part of all results and adds it to its own sums. Threads exchange nothing
// for that, and their sums are added once for an output, at the end. Blocks and matrices go from
// global memory to registers, so that a product waits for two loads one after another: its record,
// and all the rest. Where a block is large, modes behind the split one (exchanged modes) are
// divided among threads as well.
#pragma once

#include "cuda/batch/held_modes.cuh"
#include "cuda/batch/list.cuh"
#include "cuda/common/launch_order.cuh"

namespace batchkron {

// The slices of a block. The split mode, of step `step`, is K x C; `parts` is the product of the
// sizes of the exchanged modes, which follow it. So C parts threads have a slice each, of `input`
// elements, and a thread has K results of `output` elements. from, to: elements of a slice (a
// result) that are contiguous, those of the modes behind the exchanged ones. elements: sizes of all
// steps' matrices.
template <int step_, int C_, int K_, int parts_, int input_, int output_, int from_, int to_,
          int... elements>
struct BlockSlices {
  static constexpr int step = step_, C = C_, K = K_, parts = parts_;
  static constexpr int input = input_, output = output_, sums = K * output;
  static constexpr int from = from_, to = to_;
  static constexpr int steps = int(sizeof...(elements));
  static constexpr int group = C * parts;  // threads of a product
  static constexpr int products = 32 / group;  // products of a warp at a time
  static constexpr int input_size = group * input, output_size = K * parts * output;

  // Which element of the output block element i of a thread's sums is.
  __device__ static int place(int i, int part) {
    const int k = i / output, r = i % output;
    return ((r / to * K + k) * parts + part) * to + r % to;
  }

  template <class T>
  static constexpr int pitch(int s) {
    constexpr int sizes[] = {elements...};
    return matrix_pitch<T>(sizes[s]);
  }
};

// A mode of n entries, which n threads have, `stride` lanes apart.
template <int step_, int n_, int stride_>
struct ExchangedMode {
  static constexpr int step = step_, n = n_, stride = stride_;
};
template <class... Mode>
struct ExchangedModes {};

// warps: warps that share an output; outputs: outputs of a thread block; batch: products whose
// records a thread loads at a time. padded: the list has `slots` records for each output.
template <int warps_, int outputs_, int batch_, bool padded_>
struct SliceCut {
  static constexpr int warps = warps_, outputs = outputs_, batch = batch_;
  static constexpr bool padded = padded_;
  static constexpr int block = 32 * warps * outputs;
};

// The largest power of two that is not larger than count.
constexpr int power_of_two_in(int count) { return count < 2 ? 1 : 2 * power_of_two_in(count / 2); }

// The value that lane `from` of the warp has.
template <class Real>
__device__ Real held_by(Real value, int from) { return __shfl_sync(0xffffffffu, value, from); }
template <class Real>
__device__ Complex<Real> held_by(Complex<Real> value, int from) {
  return {held_by(value.real, from), held_by(value.imag, from)};
}

// Multiplies slices along the exchanged modes, one after another, and calls use(result). A thread's
// index along such a mode is its digit. Thread with digit k computes result k from the entries of
// all threads that differ from it in this digit only, beginning with its own.
template <class T, int count, class Factors, class Use>
__device__ void multiply_exchanged(const Factors&, const T* in, int, ExchangedModes<>, Use use) {
  use(in);
}
template <class T, int count, class Factors, class Mode, class... Rest, class Use>
__device__ void multiply_exchanged(const Factors& factors, const T* in, int lane,
                                   ExchangedModes<Mode, Rest...>, Use use) {
  constexpr int n = Mode::n, stride = Mode::stride;
  const int digit = lane / stride % n, first = lane - digit * stride;
  const bool skips = factors.template skips<Mode::step>();
  const T* const column = factors.template at<Mode::step>() + digit;
  T entries[n], out[count];
  UNROLLED for (int i = 0; i < n; ++i) entries[i] = column[(digit + i) % n * n];
  UNROLLED for (int j = 0; j < count; ++j) {
    T sum = multiply(in[j], entries[0]);
    UNROLLED for (int i = 1; i < n; ++i)
      sum = multiply_add(sum, held_by(in[j], first + (digit + i) % n * stride), entries[i]);
    out[j] = skips ? in[j] : sum;
  }
  multiply_exchanged<T, count>(factors, out, lane, ExchangedModes<Rest...>{}, use);
}

// Sums `count` values each over 2 `bit` lanes that are `parts` apart, by halving: in each round a
// lane hands half of its values to another one. In the end this lane has the sums of values first
// ... end - 1, in sums[0], sums[1], ...
template <int count, int bit, int parts, class T>
__device__ void sum_over_lanes(T* sums, int lane, int& first, int& end) {
  if constexpr (bit > 0) {
    const int place = lane / parts;
    const bool upper = place & bit;
    constexpr int half = (count + 1) / 2;
    UNROLLED for (int i = 0; i < half; ++i) {
      const T low = sums[i], high = half + i < count ? sums[half + i] : T{};
      sums[i] = add(upper ? high : low,
                    held_by(upper ? low : high, lane + ((place ^ bit) - place) * parts));
    }
    if (upper) first += half;
    else end = end < first + half ? end : first + half;
    sum_over_lanes<half, bit / 2, parts>(sums, lane, first, end);
  }
}
// The same over all lanes of the warp that are `parts` apart. Those beyond a power of two first
// hand their values to the first lanes, and end without any.
template <int count, int parts, class T>
__device__ void sum_over_warp(T* sums, int lane, int& first, int& end) {
  constexpr int lanes = 32 / parts, whole = power_of_two_in(lanes);
  const int place = lane / parts;
  if constexpr (whole < lanes) {
    UNROLLED for (int i = 0; i < count; ++i) {
      const T other = held_by(sums[i], (lane + whole * parts) % 32);
      if (place < lanes - whole) sums[i] = add(sums[i], other);
    }
  }
  if (whole * parts < 32 && place >= whole) end = 0;
  sum_over_lanes<count, whole / 2, parts>(sums, lane, first, end);
}
// How many sums a lane has in the end, at most.
template <int count, int lanes>
constexpr int values_left() {
  if constexpr (lanes > 1) return values_left<(count + 1) / 2, lanes / 2>();
  else return count;
}

// The warps of an output take its products in turn, and each thread adds its parts of them in the
// list's order. In the end the sums of lanes, then of warps, are added in a fixed order: the same
// bits from run to run. There is no barrier between products.
template <class T, class Slices, class Cut, int min_blocks, bool short_ids, bool identities,
          class Held, class Exchanged>
__global__ void __launch_bounds__(Cut::block, min_blocks)
    batched_slices(const RegisterBatchArguments<T, Slices::steps> a) {
  wait_for_earlier_kernels();
  using Record = HeldRecord<Slices::steps, short_ids>;
  using Factors = PoolFactors<T, Slices, Record, identities>;
  constexpr int batch = Cut::batch, groups_per_output = Cut::warps * Slices::products;
  extern __shared__ __align__(16) unsigned char shared_memory[];

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, member = warp % Cut::warps;
  const int group = lane / Slices::group, rank = lane % Slices::group, c = rank / Slices::parts;
  const bool idle = Slices::products * Slices::group < 32 && group >= Slices::products;
  const Index output = Index(blockIdx.x) * Cut::outputs + warp / Cut::warps;
  const bool active = output < a.num_outputs;
  Index begin = 0;
  int count = 0;
  if constexpr (Cut::padded) begin = output * a.slots, count = active ? int(a.slots) : 0;
  else if (active) begin = a.starts[output], count = int(a.starts[output + 1] - begin);
  const int place = member * Slices::products + group;
  const int* const list = a.list + (begin + place) * Record::size;
  const bool weighted = !*a.unit_weights;
  const auto record_of = [&](int round) {
    const int b = round * groups_per_output;
    return place + b < count && !idle ? Record::load(list + Index(b) * Record::size)
                                      : Record::none();
  };

  // first of all, since everything else waits for records
  Record records[batch];
  UNROLLED for (int i = 0; i < batch; ++i) records[i] = record_of(i);

  for (Index e = blockIdx.y; e < a.outer; e += gridDim.y) {
    const Index system = a.systems == 1 ? 0 : e % a.systems;
    const T* const x = a.x + e * a.num_inputs * Slices::input_size;
    T sums[Slices::sums] = {};
    const auto weight_of = [&](const Record& record, int round) {
      const Index first = Cut::padded ? a.starts[output] : begin;
      const Index b = first + place + round * groups_per_output;
      return record.input() >= 0 ? a.weights[system * a.weight_system + b] : T{};
    };
    const auto add_product = [&](const Record& record, T weight) {
      const bool valid = record.input() >= 0;
      const int input = valid ? record.input() : 0;
      const Factors factors{a.pools, system, record};
      T slice[Slices::input], row[Slices::K];
      const T* const block = x + Index(input) * Slices::input_size;
      UNROLLED for (int i = 0; i < Slices::input; i += Slices::from)
        load_elements<Slices::from>(block + i * Slices::group + rank * Slices::from, slice + i);
      load_elements<Slices::K>(factors.template at<Slices::step>() + c * Slices::K, row);
      if (factors.template skips<Slices::step>()) {
        UNROLLED for (int k = 0; k < Slices::K; ++k) row[k] = FromReal<T>::make(k == c);
      }
      if (weighted) UNROLLED for (int k = 0; k < Slices::K; ++k) row[k] = multiply(row[k], weight);
      multiply_held<T, 1>(factors, slice, Held{}, [&](const T* held) {
        multiply_exchanged<T, Slices::output>(factors, held, lane, Exchanged{}, [&](const T* part) {
          // If there is no product, what was loaded instead is not added, as it may be NaN.
          UNROLLED for (int k = 0; k < Slices::K; ++k) {
            const bool adds = valid && (!factors.template skips<Slices::step>() || k == c);
            const T entry = adds ? row[k] : T{};
            UNROLLED for (int i = 0; i < Slices::output; ++i)
              sums[k * Slices::output + i] = multiply_add(sums[k * Slices::output + i],
                                                          adds ? part[i] : T{}, entry);
          }
        });
      });
    };

    for (int round = 0; round * groups_per_output < count; round += batch) {
      Record next[batch];
      UNROLLED for (int i = 0; i < batch; ++i) next[i] = record_of(round + batch + i);
      T weights[batch];
      UNROLLED for (int i = 0; i < batch; ++i)
        if (weighted) weights[i] = weight_of(records[i], round + i);
      UNROLLED for (int i = 0; i < batch; ++i) add_product(records[i], weights[i]);
      UNROLLED for (int i = 0; i < batch; ++i) records[i] = next[i];
    }

    int first = 0, end = Slices::sums;
    sum_over_warp<Slices::sums, Slices::parts>(sums, lane, first, end);
    constexpr int left = values_left<Slices::sums, 32 / Slices::parts>();
    // element i of the lane's sums is element place_of(i) of the output block
    const auto place_of = [&](int i) { return Slices::place(first + i, rank % Slices::parts); };
    T* const target = a.y + (e * a.num_outputs + output) * Slices::output_size;
    const auto write = [&](int i, T sum) {
      sum = multiply(a.alpha, sum);
      target[i] = a.accumulate ? add(target[i], sum) : sum;
    };
    if constexpr (Cut::warps == 1) {
      UNROLLED for (int i = 0; i < left; ++i)
        if (active && first + i < end) write(place_of(i), sums[i]);
    } else {
      T* const parts = reinterpret_cast<T*>(shared_memory) +
                       (warp - member) * Slices::output_size;
      UNROLLED for (int i = 0; i < left; ++i)
        if (first + i < end) parts[member * Slices::output_size + place_of(i)] = sums[i];
      __syncthreads();
      for (int i = member * 32 + lane; active && i < Slices::output_size; i += Cut::warps * 32) {
        T sum = parts[i];
        UNROLLED for (int other = 1; other < Cut::warps; ++other)
          sum = add(sum, parts[other * Slices::output_size + i]);
        write(i, sum);
      }
    }
    if (e + gridDim.y < a.outer) {
      UNROLLED for (int i = 0; i < batch; ++i) records[i] = record_of(i);
      if constexpr (Cut::warps > 1) __syncthreads();  // the sums have been read
    }
  }
}

}  // namespace batchkron
