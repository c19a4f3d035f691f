// batched_registers: a batch list (contract: cuda/batch/list.cuh) of blocks that are too large for
// cuda/batch/slices.cuh. The block and matrices of a product are copied to shared memory ahead of
// their use. A group of threads multiplies the block in a few passes, in each of which a thread
// holds a part of it in registers, whole along several modes; the sums of an output stay in
// registers. Of a block that is no whole number of 16-byte words, elements beside it in x are read,
// but nothing outside of x.
#pragma once

#include "cuda/batch/shared_copies.cuh"
#include "cuda/batch/list.cuh"
#include "cuda/batch/register_passes.cuh"
#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/launch_order.cuh"

namespace batchkron {

// The factors of one product in shared memory.
template <class T, class Layout, class Record, bool identities>
struct StagedFactors {
  static constexpr bool by_row = false;
  const T* product;
  const int* record;

  template <int s>
  __device__ const T* at() const { return product + Layout::template factor<T>(s); }
  template <int s>
  __device__ bool skips() const { return identities && Record::id(record, s) < 0; }
};

// How threads are divided. group: threads that compute a product. groups_per_output: groups of a
// thread block that share the products of one output, in each thread block of a cluster of
// `cluster`. stages: products of a group that are in shared memory at a time, coming or being
// multiplied. pitch: bytes of a product in shared memory. exchange: elements of a group's second
// buffer, 0 if it needs none. The loaders are the threads that copy together: a warp, with several
// groups, or the whole thread block, with one.
template <int group_, int groups_per_output_, int cluster_, int block_, int stages_, int pitch_,
          int exchange_>
struct RegisterCut {
  static constexpr int group = group_, groups_per_output = groups_per_output_;
  static constexpr int cluster = cluster_, block = block_;
  static constexpr int stages = stages_;
  static constexpr int pitch = pitch_, exchange = exchange_;
  static constexpr int loaders = group <= 32 ? 32 : block;
  static constexpr int products = loaders / group;  // products of the loaders at a time
  static constexpr int loader_sets = block / loaders;
  static constexpr int groups = loader_sets * products;
  static constexpr int outputs = groups / groups_per_output;  // outputs of a thread block at a time
  static constexpr bool output_in_loaders = products % groups_per_output == 0;
  static constexpr unsigned working = (2u << (products * group - 1) % 32) - 1;  // lanes with a group

  __device__ static void sync_loaders() {
    if constexpr (loaders == 32) __syncwarp();
    else __syncthreads();
  }
  // A barrier of the loaders without the lanes that have no group: these read nothing that others
  // overwrite.
  __device__ static void sync_groups() {
    if constexpr (loaders == 32) __syncwarp(working);
    else __syncthreads();
  }
  __device__ static void sync_output_groups() {
    if constexpr (output_in_loaders) sync_loaders();
    else __syncthreads();
  }
};

// The shared memory of the loaders, and the copies to it. In round r each group of the loaders has one
// product. A slot is a group's number among those of its loaders.
template <class T, class Layout, class Cut, class Record>
struct GroupMemory {
  static constexpr int slots = Cut::stages > 2 ? 8 : 4;  // rounds that have records here
  static_assert(Cut::stages >= 2 && Cut::stages <= 4, "records live for 2 stages - 1 rounds");
  static constexpr int exchange =
      (Cut::exchange * int(sizeof(T)) + 15) / 16 * 16;
  static constexpr int entry = Record::words * 4 + int(sizeof(T));  // with the weight
  static constexpr int lists = (Cut::products * slots * entry + 15) / 16 * 16;
  static constexpr int bytes = lists + Cut::products * (Cut::stages * Cut::pitch + exchange);
  using Copies = SharedCopies<Cut::loaders, Cut::products>;
  unsigned char* base;

  __device__ int* record(int round, int slot) const {
    return reinterpret_cast<int*>(base) + (round % slots * Cut::products + slot) * Record::words;
  }
  __device__ T* weight(int round, int slot) const {
    return reinterpret_cast<T*>(base + Cut::products * slots * Record::words * 4) +
           round % slots * Cut::products + slot;
  }
  __device__ T* product(int round, int slot) const {
    return reinterpret_cast<T*>(base + lists +
                                (round % Cut::stages * Cut::products + slot) * Cut::pitch);
  }
  __device__ T* buffer(int slot) const {
    return reinterpret_cast<T*>(base + lists + Cut::products * Cut::stages * Cut::pitch +
                                slot * exchange);
  }
  // Bytes of the block's first word that lie before the block.
  __device__ static unsigned shift(const T* block) {
    return Layout::template whole_words<T>()
               ? 0
               : unsigned(reinterpret_cast<unsigned long long>(block)) % 16;
  }

  // Begins to copy the blocks and matrices of a round, whose records are in shared memory. x ends
  // at `end`.
  template <int steps>
  __device__ void copy_products(int round, const T* x, const T* end, const Pool<T> (&pools)[steps],
                                Index system, int lane) const {
    constexpr int chunks = Layout::template block_chunks<T>();
    Copies::template each_slot<chunks>(lane, [&](int slot, auto thread) {
      const int input = Record::input(record(round, slot));
      if (input < 0) return;
      unsigned char* const target = reinterpret_cast<unsigned char*>(product(round, slot));
      const T* const block = x + Index(input) * Layout::input;
      const unsigned char* const source =
          reinterpret_cast<const unsigned char*>(block) - shift(block);
      const Index all = reinterpret_cast<const unsigned char*>(end) - source;
      const int rest = int(all < chunks * 16 ? all : chunks * 16);
      thread.template each<chunks>([&](int i) {
        if constexpr (Layout::template whole_words<T>()) {
          constexpr int run = Layout::run * int(sizeof(T)), gap = Layout::gap * int(sizeof(T));
          copy_asynchronously<16, false>(target + i * 16 + i * 16 / run * gap, source + i * 16);
        } else if (i * 16 < rest) {
          const int left = rest - i * 16;
          copy_asynchronously_first<16>(target + i * 16, source + i * 16, left < 16 ? left : 16);
        }
      });
    });
    copy_matrices<0>(round, pools, system, lane);
  }

 private:
  template <int s, int steps>
  __device__ void copy_matrices(int round, const Pool<T> (&pools)[steps], Index system,
                                int lane) const {
    if constexpr (s < steps) {
      constexpr int chunks = Layout::template chunks<T>(s), pitch = matrix_pitch<T>(Layout::matrix(s));
      const unsigned char* const pool =
          reinterpret_cast<const unsigned char*>(pools[s].data + system * pools[s].system);
      Copies::template each_slot<chunks>(lane, [&](int slot, auto thread) {
        const int* const entry = record(round, slot);
        const int id = Record::id(entry, s);
        if (Record::input(entry) < 0 || id < 0) return;
        unsigned char* const target =
            reinterpret_cast<unsigned char*>(product(round, slot) + Layout::template factor<T>(s));
        const unsigned char* const source = pool + Index(id) * pitch;
        thread.template each<chunks>(
            [&](int i) { copy_asynchronously<16, true>(target + i * 16, source + i * 16); });
      });
      copy_matrices<s + 1>(round, pools, system, lane);
    }
  }
};

// The groups of an output, in all thread blocks of a cluster, take its products in turn. Each group
// adds its own in the list's order in registers; then the sums are added in the order of the groups,
// and of the thread blocks: the same bits from run to run. Copies of blocks and matrices are
// `stages` - 1 rounds ahead of the arithmetic, those of records twice as many.
template <class T, class Layout, class Cut, bool short_ids, bool identities, class... Pass>
__device__ void add_products(const RegisterBatchArguments<T, Layout::steps>& a) {
  using Record = ListRecord<Layout::steps, short_ids>;
  using Memory = GroupMemory<T, Layout, Cut, Record>;
  using Last = typename LastOf<Pass...>::Type;  // its layout is the output block's
  constexpr int group = Cut::group, groups_per_output = Cut::groups_per_output, ahead = Cut::stages - 1;
  constexpr int sharing = groups_per_output * Cut::cluster;  // all groups of an output
  constexpr int items = (Last::Spread::size + group - 1) / group, held = Last::Held::outputs;
  extern __shared__ __align__(16) unsigned char shared_memory[];

  const int lane = threadIdx.x % Cut::loaders, loader_set = threadIdx.x / Cut::loaders;
  const bool idle = Cut::products * group < Cut::loaders && lane >= Cut::products * group;
  const int slot = idle ? 0 : lane / group, rank = lane % group;
  const int place = loader_set * Cut::products + slot, member = place % groups_per_output;
  const Memory memory{shared_memory + loader_set * Memory::bytes};
  const int peer = blockIdx.x % Cut::cluster;
  const Index output = Index(blockIdx.x / Cut::cluster) * Cut::outputs + place / groups_per_output;
  const bool active = !idle && place / groups_per_output < Cut::outputs && output < a.num_outputs;
  const Index begin = active ? a.starts[output] + peer * groups_per_output + member : 0;
  const Index count = active ? a.starts[output + 1] - begin : 0;
  int rounds = count > 0 ? int((count + sharing - 1) / sharing) : 0;
  if constexpr (Cut::loaders == 32) rounds = int(__reduce_max_sync(0xffffffffu, unsigned(rounds)));
  const bool weighted = !*a.unit_weights;

  for (Index e = blockIdx.y; e < a.outer; e += gridDim.y) {
    const Index system = e % a.systems;
    const T* const x = a.x + e * a.num_inputs * Layout::input;
    const T* const end = x + a.num_inputs * Layout::input;
    const auto copy_list = [&](int round) {
      if (idle || round >= rounds) return;
      int* const target = memory.record(round, slot);
      const Index b = begin + Index(round) * sharing;
      if (Index(round) * sharing < count) {
        constexpr int bytes = Record::words == 2 ? 8 : 16, copies = Record::words * 4 / bytes;
        for (int i = rank; i < copies; i += group)
          copy_asynchronously<bytes, false>(target + i * (bytes / 4),
                                            a.list + b * Record::words + i * (bytes / 4));
        if (weighted && rank == 0)
          copy_asynchronously<int(sizeof(T)), false>(
              memory.weight(round, slot), a.weights + system * a.weight_system + b);
      } else if (rank == 0) {
        target[0] = -1;
      }
    };

    T sums[items * held] = {};
    for (int round = 0; round < ahead; ++round) copy_list(round);
    commit_copies();
    wait_for_copies<0>();
    Cut::sync_loaders();
    for (int round = 0; round < ahead; ++round) {
      if (round < rounds) memory.copy_products(round, x, end, a.pools, system, lane);
      copy_list(round + ahead);
      commit_copies();
    }
    for (int round = 0; round < rounds; ++round) {
      wait_for_copies<ahead - 1>();
      Cut::sync_loaders();  // this round's copies are complete; what the next overwrite has been read
      if (round + ahead < rounds) memory.copy_products(round + ahead, x, end, a.pools, system, lane);
      copy_list(round + 2 * ahead);
      commit_copies();

      const bool valid = Index(round) * sharing < count;
      T* const product = memory.product(round, slot);
      const int input = Record::input(memory.record(round, slot));
      T* const block = product + Memory::shift(x + Index(input) * Layout::input) / sizeof(T);
      T* const buffer = Cut::exchange ? memory.buffer(slot) : block;
      T* const other = Cut::exchange ? product : block;
      using Factors = StagedFactors<T, Layout, Record, identities>;
      const Factors factors{product, memory.record(round, slot)};
      const T weight = weighted && valid ? *memory.weight(round, slot) : FromReal<T>::make(1);
      if (idle) continue;
      run_register_passes<T, group, Factors, Pass...>(
          factors, block, buffer, other, rank, [] { Cut::sync_groups(); },
          [&](const T* results) {
            if (valid) {
              UNROLLED for (int i = 0; i < items * held; ++i)
                sums[i] = multiply_add(sums[i], weight, results[i]);
            }
          });
    }

    // The groups' sums are exchanged through the shared memory of their first products.
    wait_for_copies<0>();
    Cut::sync_loaders();
    if (!idle) {
      UNROLLED for (int i = 0; i < items; ++i)
        if ((i + 1) * group <= Last::Spread::size || rank + i * group < Last::Spread::size)
          store_held<T, typename Last::Held, typename Last::Spread>(
              memory.product(0, slot), rank + i * group, sums + i * held);
    }
    Cut::sync_output_groups();
    const int first = place - member;
    const auto part_of = [&](int other) {
      const Memory its{shared_memory + other / Cut::products * Memory::bytes};
      return its.product(0, other % Cut::products);
    };
    T* const target = a.y + (e * a.num_outputs + output) * Layout::output;
    const auto write = [&](int i, T sum) {
      sum = multiply(a.alpha, sum);
      target[i] = a.accumulate ? add(target[i], sum) : sum;
    };
    if (active)
      for (int i = member * group + rank; i < Layout::output; i += groups_per_output * group) {
        T sum = part_of(first)[i];
        for (int other = first + 1; other < first + groups_per_output; ++other)
          sum = add(sum, part_of(other)[i]);
        if constexpr (Cut::cluster == 1) write(i, sum);
        else part_of(first)[i] = sum;
      }
    if constexpr (Cut::cluster > 1) {
      sync_cluster();
      if (active)
        for (int i = (peer * groups_per_output + member) * group + rank; i < Layout::output;
             i += sharing * group) {
          T sum = *of_block(part_of(first) + i, 0);
          UNROLLED for (int other = 1; other < Cut::cluster; ++other)
            sum = add(sum, *of_block(part_of(first) + i, other));
          write(i, sum);
        }
      sync_cluster();  // others have read the sums
    } else {
      Cut::sync_output_groups();
    }
  }
}

template <class T, class Layout, class Cut, int min_blocks, bool short_ids, bool identities,
          class... Pass>
__global__ void __launch_bounds__(Cut::block, min_blocks)
    batched_registers(const RegisterBatchArguments<T, Layout::steps> a) {
  wait_for_earlier_kernels();
  add_products<T, Layout, Cut, short_ids, identities, Pass...>(a);
}

// The same with the thread blocks of a cluster sharing an output.
template <class T, class Layout, class Cut, int min_blocks, bool short_ids, bool identities,
          class... Pass>
__global__ void BATCHKRON_CLUSTER(Cut::cluster) __launch_bounds__(Cut::block, min_blocks)
    batched_registers_cluster(const RegisterBatchArguments<T, Layout::steps> a) {
  wait_for_earlier_kernels();
  add_products<T, Layout, Cut, short_ids, identities, Pass...>(a);
}

}  // namespace batchkron
