// y[node] (+)= alpha sum over the edges e of node of A_e ._mode x[child_e], where a thread block reads
// each block once for several nodes, from a stream of copies to shared memory.
#pragma once

#include "bulk_copy.cuh"
#include "sweep_tiles.cuh"

namespace batchkron {

// The modes of a block in two halves: sizes of the first modes, or of the last ones. `size` elements
// in all; lanes have one for each element of the other half.
template <int... n>
struct SweepHalf {
  static constexpr int count = int(sizeof...(n)), size = (n * ... * 1);
};

// An edge: a place in the thread block's stream of children · 16 + the mode, and where its matrix
// begins, in words of 16 bytes. Mode 15: the node is complete, and its target in place of the matrix.
// Mode 14: the warp has no more nodes.
struct alignas(8) SweepRecord {
  unsigned key;
  int word;
};

// x is (outer, num_inputs, block), y and scratch likewise, contiguous, all of their own. Thread block
// b reads children[starts[b]] to children[starts[b + 1] - 1] in this order, its warp w the records
// from streams[b * warps + w] on, whose edges are in the order of their children. Words of 16 bytes
// that x lies in are read whole.
template <class T>
struct SweepStreamArguments {
  const T* x;
  T* y;
  T* scratch;
  const int* starts;
  const int* children;
  const int* streams;
  const SweepRecord* records;
  const T* matrices;  // 16-byte aligned, as those of segmented_multiply
  Index outer, num_inputs, num_outputs, num_scratch;
  Index accumulate;
  T alpha;
};

// Calls the multiply of an edge's mode: sums[l, k, r] += sum_c matrix[c][k] child[l, c, r] of the
// lane's slice, elements `apart` from each other.
template <int apart, int mode, int L, int n, int... after, int size, class T>
__device__ void add_edge(int which, T (&sums)[size], const T* child, const T* matrix) {
  if (which == mode) {
    constexpr int R = size / (L * n);
    T columns[n][n];
#pragma unroll
    for (int c = 0; c < n; ++c) SweepMatrix<T, n>::load(matrix, c, columns[c]);
#pragma unroll
    for (int l = 0; l < L; ++l)
#pragma unroll
      for (int r = 0; r < R; ++r)
#pragma unroll
        for (int c = 0; c < n; ++c) {
          const T value = child[((l * n + c) * R + r) * apart];
#pragma unroll
          for (int k = 0; k < n; ++k) {
            T& sum = sums[(l * n + k) * R + r];
            sum = multiply_add(sum, value, columns[c][k]);
          }
        }
    return;
  }
  if constexpr (sizeof...(after) > 0)
    add_edge<apart, mode + 1, L * n, after...>(which, sums, child, matrix);
}

// Words of 16 bytes of a matrix n × n.
template <class T, int n>
constexpr int sweep_matrix_words = (n * SweepMatrix<T, n>::Column::pitch * int(sizeof(T)) + 15) / 16;

// How a thread block is cut: warps that make nodes, children that fit in shared memory, and lanes
// whose sums are exchanged at a time.
template <int warps_, int slots_, int piece_>
struct SweepStreamCut {
  static constexpr int warps = warps_, slots = slots_, piece = piece_, threads = warps * 32 + 32;
};

template <class T, class First, class Last, class Cut>
struct SweepStream;

template <class T, int... first, int... last, class Cut>
struct SweepStream<T, SweepHalf<first...>, SweepHalf<last...>, Cut> {
  using Real = typename RealOf<T>::Type;
  using Barrier = unsigned long long;
  static constexpr int A = SweepHalf<first...>::size, B = SweepHalf<last...>::size;
  static constexpr int block = A * B, bytes = block * int(sizeof(T));
  static constexpr int slot_bytes = (bytes + 16 - int(sizeof(Real)) + 15) / 16 * 16;
  static constexpr int exchange = Cut::piece * (B | 1);  // elements of a warp
  static constexpr int deep = 4;  // matrices of a warp: read now, there, coming, free
  static constexpr int most_words = [] {
    int most = 0;
    ((most = most > sweep_matrix_words<T, first> ? most : sweep_matrix_words<T, first>), ...);
    ((most = most > sweep_matrix_words<T, last> ? most : sweep_matrix_words<T, last>), ...);
    return most;
  }();
  struct alignas(16) Word {
    int parts[4];
  };
  static_assert(A <= 32 && B <= 32, "a lane for each slice");

  const SweepStreamArguments<T>& a;
  unsigned char* slots;
  T* exchanged;     // of all warps
  Word* matrices;   // of all warps, (warp, deep, most_words)
  Barrier *full, *empty;
  int* leads;  // bytes in front of a slot's block

  __device__ SweepStream(const SweepStreamArguments<T>& arguments, unsigned char* memory)
      : a(arguments),
        slots(memory),
        exchanged(reinterpret_cast<T*>(memory + Cut::slots * slot_bytes)),
        matrices(reinterpret_cast<Word*>(memory + Cut::slots * slot_bytes +
                                         (Cut::warps * exchange * int(sizeof(T)) + 15) / 16 * 16)),
        full(reinterpret_cast<Barrier*>(matrices + Cut::warps * deep * most_words)),
        empty(full + Cut::slots),
        leads(reinterpret_cast<int*>(empty + Cut::slots)) {}

  __device__ void begin(int thread) const {
    if (thread < Cut::slots) {
      begin_barrier(full + thread, 1);
      begin_barrier(empty + thread, Cut::warps);
      show_barriers();
    }
  }

  // One warp copies the children of all entries, as soon as their slots are free.
  __device__ void copy(int lane) const {
    const int begin = a.starts[blockIdx.x], count = a.starts[blockIdx.x + 1] - begin;
    int done = 0;
    for (Index entry = blockIdx.y; entry < a.outer; entry += gridDim.y, done += count)
      for (int some = 0; some < count; some += 32) {
        const int mine = some + lane;
        const int id = mine < count ? a.children[begin + mine] : 0;
        for (int i = 0; i < 32 && some + i < count; ++i) {
          if (lane == i) copy_child(entry, id, done + mine);
          __syncwarp();
        }
      }
  }

  // A warp makes its nodes of all entries.
  __device__ void make(int warp, int lane) const {
    const int count = a.starts[blockIdx.x + 1] - a.starts[blockIdx.x];
    const SweepRecord* const stream = a.records + a.streams[blockIdx.x * Cut::warps + warp];
    int done = 0;  // children of earlier entries
    for (Index entry = blockIdx.y; entry < a.outer; entry += gridDim.y, done += count)
      make_entry(stream, entry, done, count, warp, lane);
  }

 private:
  __device__ void copy_child(Index entry, int id, int number) const {
    const T* const from = Index(id) < a.num_inputs
                              ? a.x + (entry * a.num_inputs + id) * block
                              : a.scratch + (entry * a.num_scratch + id - a.num_inputs) * block;
    const unsigned long long address = reinterpret_cast<unsigned long long>(from);
    const int lead = int(address % 16), all = (lead + bytes + 15) / 16 * 16;
    const int slot = number % Cut::slots, round = number / Cut::slots;
    if (round > 0) wait_for_phase(empty + slot, (round - 1) % 2);
    leads[slot] = lead;
    arrive_expecting(full + slot, all);
    copy_bulk(slots + slot * slot_bytes, reinterpret_cast<const void*>(address - lead), all,
              full + slot);
  }

  // Begins to copy an edge's matrix: a batch of copies, empty where there is none.
  __device__ void fetch(const SweepRecord& edge, Word* room, int lane) const {
    const int mode = int(edge.key & 15);
    int words = 0, m = 0;
    ((words = mode == m++ ? sweep_matrix_words<T, first> : words), ...);
    ((words = mode == m++ ? sweep_matrix_words<T, last> : words), ...);
    if (words > 0) {
      const Word* const from = reinterpret_cast<const Word*>(a.matrices) + edge.word;
      for (int w = lane; w < words; w += 32)
        copy_asynchronously<16, true>(room + w, from + w);
    }
    commit_copies();
  }

  // Says that the warp will read no child before number `next`. A slot's next child is not there
  // before all warps have said so; hence each of them first waits for those that it does not read.
  __device__ void release(int& released, int next, int lane) const {
    constexpr int step = Cut::slots < 32 ? Cut::slots : 32;
    for (int some = released; some < next; some += step) {
      __syncwarp();
      const int number = some + lane, slot = number % Cut::slots;
      if (lane < step && number < next) {
        wait_for_phase(full + slot, number / Cut::slots % 2);
        arrive(empty + slot);
      }
    }
    released = next;
    __syncwarp();  // no lane waits for a slot's next phase before the last one is known to be over
  }

  __device__ void make_entry(const SweepRecord* record, Index entry, int done, int count, int warp,
                             int lane) const {
    int released = done, current = done - 1;
    const T* child = nullptr;
    T sums[A] = {}, others[B] = {};  // of the first modes, of the last ones
    Word* const room = matrices + warp * deep * most_words;
    const int column = lane < B ? lane : B - 1, row = lane < A ? lane : A - 1;
    SweepRecord now = record[0], next = record[1], third = record[2];
    fetch(now, room, lane);
    fetch(next, room + most_words, lane);
    for (int place = 0;; place = (place + 1) % deep, ++record) {
      const SweepRecord edge = now;
      const int mode = int(edge.key & 15);
      if (mode == 14) break;
      fetch(third, room + (place + 2) % deep * most_words, lane);
      now = next;
      next = third;
      third = record[3];
      if (mode == 15) {
        write(entry, edge.word, sums, others, warp, lane);
#pragma unroll
        for (int e = 0; e < A; ++e) sums[e] = T{};
#pragma unroll
        for (int e = 0; e < B; ++e) others[e] = T{};
        continue;
      }
      const int number = done + int(edge.key >> 4);
      if (number != current) {
        release(released, number, lane);
        const int slot = number % Cut::slots;
        wait_for_phase(full + slot, number / Cut::slots % 2);
        child = reinterpret_cast<const T*>(slots + slot * slot_bytes + leads[slot]);
        current = number;
      }
      wait_for_copies<2>();
      __syncwarp();
      const T* const matrix = reinterpret_cast<const T*>(room + place * most_words);
      if (mode < int(sizeof...(first)))
        add_edge<B, 0, 1, first...>(mode, sums, child + column, matrix);
      else
        add_edge<1, int(sizeof...(first)), 1, last...>(mode, others, child + row * B, matrix);
    }
    wait_for_copies<0>();
    release(released, done + count, lane);
  }

  // y[i, j]: lane j has sums[i], lane i has others[j].
  __device__ void write(Index entry, int to, const T (&sums)[A], const T (&others)[B], int warp,
                        int lane) const {
    constexpr int pitch = B | 1;
    T* const mine = exchanged + warp * exchange;
    const bool is_output = Index(to) < a.num_outputs, adds = a.accumulate && is_output;
    T* const target = is_output
                          ? a.y + (entry * a.num_outputs + to) * block
                          : a.scratch + (entry * a.num_scratch + to - a.num_outputs) * block;
#pragma unroll
    for (int begin = 0; begin < A; begin += Cut::piece) {
      __syncwarp();
      if (lane >= begin && lane < begin + Cut::piece && lane < A)
#pragma unroll
        for (int e = 0; e < B; ++e) mine[(lane - begin) * pitch + e] = others[e];
      __syncwarp();
      if (lane < B)
#pragma unroll
        for (int i = 0; i < Cut::piece; ++i)
          if (begin + i < A) {
            T sum = add(sums[begin + i], mine[i * pitch + lane]);
            if (is_output) sum = multiply(a.alpha, sum);
            T& element = target[(begin + i) * B + lane];
            element = adds ? add(element, sum) : sum;
          }
    }
  }
};

// The last warp of a thread block copies children, block by block; the others read them from shared
// memory, make a node each, and the next one. The same bits from run to run.
template <class T, class First, class Last, class Cut>
__global__ void __launch_bounds__(Cut::threads, 1)
    sweep_streams(const SweepStreamArguments<T> a) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const SweepStream<T, First, Last, Cut> stream(a, shared_memory);
  stream.begin(int(threadIdx.x));
  __syncthreads();
  if (warp == Cut::warps)
    stream.copy(lane);
  else
    stream.make(warp, lane);
}

}  // namespace batchkron
