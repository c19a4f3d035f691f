// batched_unsorted: adds the products of a batch list to y in any order, atomically; the list and the
// pools are as the user gave them, so that nothing has to be sorted or copied before. A group of
// threads multiplies a block in a few passes, in each of which a thread holds a part of it in
// registers (cuda/batch/register_passes.cuh). The results go through shared memory, so that
// neighbouring threads add neighbouring elements to y: the L2 cache adds all elements of a 32-byte
// sector that one instruction of a warp asks for at once, and otherwise one at a time. Only where a
// thread holds all that one atomic addition takes, it adds from its registers.
#pragma once

#include "cuda/batch/shared_copies.cuh"
#include "cuda/batch/list.cuh"
#include "cuda/batch/register_passes.cuh"
#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/atomic_words.cuh"
#include "cuda/common/launch_order.cuh"

namespace batchkron {

// For all entries e of outer and all products b,
//   y[e, outputs[b]] += alpha weights[b] (A_1b (x) ... (x) A_db) x[e, inputs[b]]
// Arrays and systems are those of cuda/batch/list.cuh; y is aligned to 16 bytes, too. ids is
// (products, steps); the matrix of step s has the number in column columns[s], of limits[s] in the
// pool, and -1 is the identity where the kernel has identities. weights may be null if all are 1.
// With `refused`, a product with a number out of range is left out, and *refused becomes the least
// index of such a product.
template <class T, class Number, int steps>
struct UnsortedArguments {
  const T* x;
  T* y;
  const Number* ids;
  const Number* inputs;
  const Number* outputs;
  const T* weights;
  Index* refused;
  const T* pools[steps];
  Index pool_systems[steps];  // elements from a system's pool to that of the next
  Index limits[steps];
  Index columns[steps];
  Index outer, systems, num_inputs, num_outputs, weight_system, products;
  T alpha;
};

// How threads are divided, as in RegisterCut of cuda/batch/registers.cuh. A group has two products in
// shared memory: one comes while the other is multiplied.
template <int group_, int block_, int pitch_, int exchange_>
struct UnsortedCut {
  static constexpr int group = group_, block = block_, pitch = pitch_, exchange = exchange_;
  static constexpr int loaders = group <= 32 ? 32 : block;
  static constexpr int products = loaders / group;  // products of the loaders at a time
  static constexpr int groups = block / loaders * products;

  __device__ static void sync_loaders() {
    if constexpr (loaders == 32) __syncwarp();
    else __syncthreads();
  }
};

// Bytes that a copy takes at a time, the most that divide the bytes from one object to the next.
constexpr int copied_word(int bytes) { return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4; }

// What a group knows of a product before its data come. input is -1 if there is no product.
template <class T, int steps>
struct UnsortedProduct {
  Index input, output;
  int ids[steps];
  T weight;
};

// The factors of one product in shared memory.
template <class T, class Layout, bool by_row_, bool identities>
struct UnsortedFactors {
  static constexpr bool by_row = by_row_;
  const T* product;
  const int* ids;

  template <int s>
  __device__ const T* at() const { return product + Layout::template factor<T>(s); }
  template <int s>
  __device__ bool skips() const { return identities && ids[s] < 0; }
};

// Reads the numbers of product b.
template <class T, class Number, bool identities, int steps>
__device__ UnsortedProduct<T, steps> read_product(const UnsortedArguments<T, Number, steps>& a,
                                                  Index b, Index system, bool reports) {
  UnsortedProduct<T, steps> product{};
  product.input = -1;
  if (b >= a.products) return product;
  const Index input = a.inputs[b];
  product.output = a.outputs[b];
  bool valid = true;
  UNROLLED for (int s = 0; s < steps; ++s) {
    const Index id = a.ids[b * steps + a.columns[s]];
    valid = valid && id >= (identities ? -1 : 0) && id < a.limits[s];
    product.ids[s] = int(id);
  }
  product.weight = a.weights ? multiply(a.alpha, a.weights[system * a.weight_system + b]) : a.alpha;
  valid = valid && input >= 0 && input < a.num_inputs && product.output >= 0 &&
          product.output < a.num_outputs;
  if (valid) product.input = input;
  else if (a.refused && reports) atomicMin(a.refused, b);
  return product;
}

// The shared memory of the loaders: of each group the numbers of three products (the input, -1 if
// there is none, the output, and the ids), blocks and matrices of two, and the buffer of an exchange.
template <class T, class Layout, class Cut, bool by_row>
struct UnsortedMemory {
  static constexpr int steps = Layout::steps;
  static constexpr int numbers = 2 + steps;
  static constexpr int lists = (3 * Cut::products * numbers * 4 + 15) / 16 * 16;
  static constexpr int exchange = (Cut::exchange * int(sizeof(T)) + 15) / 16 * 16;
  static constexpr int bytes = lists + Cut::products * (2 * Cut::pitch + exchange);
  using Copies = SharedCopies<Cut::loaders, Cut::products>;
  unsigned char* base;

  __device__ int* record(Index round, int slot) const {
    return reinterpret_cast<int*>(base) + (int(round % 3) * Cut::products + slot) * numbers;
  }
  __device__ T* product(Index round, int slot) const {
    return reinterpret_cast<T*>(base + lists +
                                (int(round % 2) * Cut::products + slot) * Cut::pitch);
  }
  __device__ T* buffer(int slot) const {
    return reinterpret_cast<T*>(base + lists + 2 * Cut::products * Cut::pitch + slot * exchange);
  }

  __device__ void write_record(Index round, int slot,
                               const UnsortedProduct<T, steps>& product) const {
    int* const target = record(round, slot);
    target[0] = int(product.input);
    target[1] = int(product.output);
    UNROLLED for (int s = 0; s < steps; ++s) target[2 + s] = product.ids[s];
  }

  // Begins to copy the blocks and matrices of a round, whose records are in shared memory.
  template <class Arguments>
  __device__ void copy_products(Index round, const T* x, const Arguments& a, Index system,
                                int lane) const {
    constexpr int size = Layout::input * int(sizeof(T)), word = copied_word(size);
    constexpr int run = Layout::run * int(sizeof(T)), gap = Layout::gap * int(sizeof(T));
    constexpr int chunks = size / word;
    Copies::template each_slot<chunks>(lane, [&](int slot, auto thread) {
      const int input = record(round, slot)[0];
      if (input < 0) return;
      unsigned char* const target = reinterpret_cast<unsigned char*>(product(round, slot));
      const unsigned char* const source =
          reinterpret_cast<const unsigned char*>(x + Index(input) * Layout::input);
      thread.template each<chunks>([&](int i) {
        copy_asynchronously<word, false>(target + i * word + i * word / run * gap,
                                         source + i * word);
      });
    });
    copy_matrices<0>(round, a, system, lane);
  }

  // Adds the results of a round, each of them contiguous in shared memory from results(slot) on.
  template <class Results>
  __device__ void add_results(Index round, T* y, int lane, Results results) const {
    using Real = typename RealPart<T>::Type;
    constexpr int size = Layout::output * int(sizeof(T) / sizeof(Real));
    constexpr auto fits = [](int word) { return word <= max_atomic_word<Real> && size % word == 0; };
    constexpr int count = fits(4) ? 4 : fits(2) ? 2 : 1, words = size / count;
    UNROLLED_BY(4) for (int i = lane; i < Cut::products * words; i += Cut::loaders) {
      const int slot = i / words, at = i % words * count;
      const int* const entry = record(round, slot);
      if (entry[0] < 0) continue;
      Real values[count];
      const Real* const source = reinterpret_cast<const Real*>(results(slot)) + at;
      UNROLLED for (int j = 0; j < count; ++j) values[j] = source[j];
      Real* const target = reinterpret_cast<Real*>(y + Index(entry[1]) * Layout::output);
      atomic_add_word<count>(target + at, values);
    }
  }

 private:
  template <int s, class Arguments>
  __device__ void copy_matrices(Index round, const Arguments& a, Index system, int lane) const {
    if constexpr (s < steps) {
      constexpr int size = Layout::matrix(s) * int(sizeof(T));
      constexpr int pitch = by_row ? size : matrix_pitch<T>(Layout::matrix(s));
      constexpr int word = copied_word(pitch), chunks = (size + word - 1) / word;
      const unsigned char* const pool =
          reinterpret_cast<const unsigned char*>(a.pools[s] + system * a.pool_systems[s]);
      Copies::template each_slot<chunks>(lane, [&](int slot, auto thread) {
        const int* const entry = record(round, slot);
        const int id = entry[2 + s];
        if (entry[0] < 0 || id < 0) return;
        unsigned char* const target =
            reinterpret_cast<unsigned char*>(product(round, slot) + Layout::template factor<T>(s));
        const unsigned char* const source = pool + Index(id) * pitch;
        thread.template each<chunks>([&](int i) {
          copy_asynchronously<word, true>(target + i * word, source + i * word);
        });
      });
      copy_matrices<s + 1>(round, a, system, lane);
    }
  }
};

// Whether the registers of an item of the last pass are one word of an atomic addition.
template <class T, class Held, class Spread>
constexpr bool is_atomic_word() {
  constexpr int count = Held::outputs;
  return (count == 2 || count == 4) && count <= max_atomic_word<T> && Held::writes_words(count) &&
         Spread::to_words(count);
}

// Groups take products in turn. While a group multiplies one, the data of the next come, and the
// numbers of the one after it.
template <class T, class Number, class Layout, class Cut, int min_blocks, bool by_row,
          bool identities, class... Pass>
__global__ void __launch_bounds__(Cut::block, min_blocks)
    batched_unsorted(const UnsortedArguments<T, Number, Layout::steps> a) {
  wait_for_earlier_kernels();
  using Last = typename LastOf<Pass...>::Type;  // its layout is the output block's
  constexpr int group = Cut::group, items = (Last::Spread::size + group - 1) / group;
  constexpr int held = Last::Held::outputs, passes = int(sizeof...(Pass));
  constexpr bool direct = is_atomic_word<T, typename Last::Held, typename Last::Spread>();
  constexpr int waits = passes - 1 + (!direct && !Cut::exchange);
  extern __shared__ __align__(16) unsigned char shared_memory[];

  const int lane = threadIdx.x % Cut::loaders, loader_set = threadIdx.x / Cut::loaders;
  const bool idle = Cut::products * group < Cut::loaders && lane >= Cut::products * group;
  const int slot = idle ? 0 : lane / group, rank = lane % group;
  using Memory = UnsortedMemory<T, Layout, Cut, by_row>;
  const Memory memory{shared_memory + loader_set * Memory::bytes};
  const Index of_loaders = Index(blockIdx.x) * Cut::groups + loader_set * Cut::products;
  const Index stride = Index(gridDim.x) * Cut::groups, first = of_loaders + slot;
  const Index rounds = of_loaders < a.products ? (a.products - of_loaders + stride - 1) / stride : 0;
  const bool writes = !idle && rank == 0;

  for (Index e = blockIdx.y; e < a.outer; e += gridDim.y) {
    const Index system = e % a.systems;
    const T* const x = a.x + e * a.num_inputs * Layout::input;
    T* const y = a.y + e * a.num_outputs * Layout::output;
    const auto read = [&](Index round) {
      const Index b = idle || round >= rounds ? a.products : first + round * stride;
      return read_product<T, Number, identities>(a, b, system, rank == 0 && e == 0);
    };
    UnsortedProduct<T, Layout::steps> now = read(0), next = read(1);
    if (writes) memory.write_record(0, slot, now);
    if (writes) memory.write_record(1, slot, next);
    Cut::sync_loaders();
    memory.copy_products(0, x, a, system, lane);
    commit_copies();
    for (Index round = 0; round < rounds; ++round) {
      const UnsortedProduct<T, Layout::steps> coming = read(round + 2);
      memory.copy_products(round + 1, x, a, system, lane);
      commit_copies();
      wait_for_copies<1>();
      Cut::sync_loaders();  // this round's data are there
      // The result takes the place that the last pass does not read, if there is one.
      const auto result = [&](int slot) {
        return Cut::exchange && passes % 2 == 1 ? memory.buffer(slot) : memory.product(round, slot);
      };
      if (idle) {  // waits as often as the others do
        for (int i = 0; i < waits; ++i) Cut::sync_loaders();
      } else {
        T* const block = memory.product(round, slot);
        T* const buffer = Cut::exchange ? memory.buffer(slot) : block;
        using Factors = UnsortedFactors<T, Layout, by_row, identities>;
        const Factors factors{block, now.ids};
        run_register_passes<T, group, Factors, Pass...>(
            factors, block, buffer, block, rank, [] { Cut::sync_loaders(); },
            [&](const T* registers) {
              if constexpr (!direct && !Cut::exchange) Cut::sync_loaders();  // all have read the block
              UNROLLED for (int i = 0; i < items; ++i) {
                const int item = rank + i * group;
                if ((i + 1) * group > Last::Spread::size && item >= Last::Spread::size) continue;
                T values[held];
                UNROLLED for (int j = 0; j < held; ++j)
                  values[j] = multiply(now.weight, registers[i * held + j]);
                if constexpr (!direct)
                  store_held<T, typename Last::Held, typename Last::Spread>(result(slot), item,
                                                                            values);
                else if (now.input >= 0)
                  atomic_add_word<held>(
                      y + now.output * Layout::output + Last::Spread::to(item), values);
              }
            });
      }
      if (writes) memory.write_record(round + 2, slot, coming);
      Cut::sync_loaders();  // all results and the numbers of the next copies are there
      if constexpr (!direct) memory.add_results(round, y, lane, result);
      Cut::sync_loaders();  // what the next copies overwrite has been read
      now = next;
      next = coming;
    }
    wait_for_copies<0>();
    Cut::sync_loaders();
  }
}

}  // namespace batchkron
