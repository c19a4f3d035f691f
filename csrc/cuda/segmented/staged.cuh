// staged_sums: the sums over edges of cuda/segmented/general.cuh for single vectors (inner = 1),
// all of whose modes have one odd size up to 7, with blocks of some hundred elements or more; for
// compute capability 9.0 and up. Children come to shared memory by bulk copies. The edges of a node
// that read the same child along neighbouring modes (a bundle) are one load; a thread has the
// entries of a whole bundle in registers, so that it reads an element once for all of its modes.
//
// Shapes below: n entries of a mode, m modes of a bundle; a block has `size` elements, seen as
// (L, n^m, R). A thread has `items` of the L R places of a bundle. A thread group computes a node.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/shared_barrier.cuh"
#include "cuda/segmented/general.cuh"

namespace batchkron {

// A bundle: `modes` neighbouring modes of n entries each.
template <int n_, int modes_, int L_, int R_, int items_>
struct ModeBundle {
  static constexpr int n = n_, modes = modes_, L = L_, R = R_, items = items_, places = L * R;
  static constexpr int power(int exponent) { return exponent == 0 ? 1 : n * power(exponent - 1); }
  static constexpr int size = power(modes);

  // Where a place begins in its block.
  __device__ static int begin_of(int place) { return place / R * size * R + place % R; }
};

// A thread group has `group` threads, a thread block `groups` thread groups. slots: children of a
// group in shared memory at a time. blocks: least number of thread blocks on a multiprocessor.
// column: elements from one column of a matrix to the next. between: whether children may be in
// scratch memory.
template <int group_, int groups_, int slots_, int blocks_, int column_, bool between_>
struct StagedCut {
  static constexpr int group = group_, groups = groups_, slots = slots_, blocks = blocks_;
  static constexpr int column = column_, block = group * groups;
  static constexpr bool between = between_;

  __device__ static void sync_group(int index) {
    SegmentCut<group, groups, 1, true>::sync_group(index);
  }
};

// A load: a child that is copied once for its edges along the modes of a bundle. child: the block's
// number times 2^max_bundle_modes, plus bit k for each mode k of the bundle that has a matrix.
// matrices: where each mode's matrix begins, in words of 16 bytes, or -1.
constexpr int max_bundle_modes = 3;
struct alignas(16) StagedLoad {
  int child;
  int matrices[max_bundle_modes];
};

// sums += A_k ._k values for each mode k of a bundle that has a matrix. Matrices are `room`
// elements apart in shared memory.
template <class T, class Bundle, int column, int room>
struct BundleMultiply {
  using Values = T[Bundle::size];  // [n^m]

  // present: bit k says whether mode k has a matrix
  template <int mode = 0>
  __device__ static void accumulate(Values& sums, const Values& values, unsigned present,
                                    const T* matrices) {  // [m][room]
    if (present >> mode & 1)
      accumulate_mode<Bundle::power(mode)>(sums, values, matrices + mode * room);
    if constexpr (mode + 1 < Bundle::modes)
      accumulate<mode + 1>(sums, values, present, matrices);
  }

 private:
  // Sums and values are (before, n, behind).
  template <int before>
  __device__ static void accumulate_mode(Values& sums, const Values& values,
                                         const T* matrix) {  // [n][column]
    constexpr int n = Bundle::n, behind = Bundle::size / before / n;
    struct alignas(Pack<T, column>::alignment) Column {
      T values[column];
    };
    UNROLLED for (int c = 0; c < n; ++c) {
      const Column own = *reinterpret_cast<const Column*>(matrix + c * column);  // [column]
      UNROLLED for (int i = 0; i < before * behind; ++i) {
        const int first = i / behind * n * behind + i % behind;
        UNROLLED for (int k = 0; k < n; ++k) {
          T& sum = sums[first + k * behind];
          sum = multiply_add(sum, values[first + c * behind], own.values[k]);
        }
      }
    }
  }
};

// The children of a thread group in shared memory, and their matrices; slots are used in turn. Bulk
// copies take whole words of 16 bytes, but a block may begin at any element: so the words around it
// are copied. They may contain up to 15 bytes outside of x, which is safe, because an aligned word
// never lies on two pages. A block has the same offset from a line of 128 bytes in shared memory as
// in global memory, so that each line is requested once.
template <class T, class Cut, class First, int size>
struct ChildRing {
  static_assert(First::size % 2 == 1, "neighbouring bundles begin in different banks");
  static constexpr int line = 128;  // bytes
  static constexpr int lines(int bytes) { return (bytes + line - 1) / line * line; }
  static constexpr int block = lines(size * int(sizeof(T))) + line;
  static constexpr int matrix_words = (First::n * Cut::column * int(sizeof(T)) + 15) / 16;
  static constexpr int words = max_bundle_modes * matrix_words;
  static constexpr int slot = block + lines(words * 16);
  static constexpr int bytes = line + Cut::slots * slot;  // a line for the barriers, then the slots
  static constexpr int passes = (words + Cut::group - 1) / Cut::group;  // copies a thread and load
  static_assert(Cut::slots <= 3, "notes of them and of one more");

  char* const memory;   // [bytes]
  int index, rank;      // of the group in its thread block, of the thread in its group
  int current = 0;      // slot of the current child
  int phase = 0;        // phase of its barrier
  // A byte for each child in shared memory, the current one in the lowest: three bits that say
  // which modes have a matrix, and five for the child's offset from a line, in units of 4 bytes.
  unsigned notes = 0;

  __device__ ChildRing(char* own_memory, int own_index, int own_rank)
      : memory(own_memory), index(own_index), rank(own_rank) {
    if (rank == 0)
      for (int s = 0; s < Cut::slots; ++s) barrier(s).begin_for_bulk(1);
    Cut::sync_group(index);
  }

  __device__ SharedBarrier& barrier(int s) const {
    return reinterpret_cast<SharedBarrier*>(memory)[s];
  }
  __device__ char* place(int s) const { return memory + line + s * slot; }  // [slot]

  // The current child: its arrival, elements, modes that have a matrix, and matrices.
  __device__ void wait_for_child() const { barrier(current).wait(phase); }
  __device__ const T* child() const {
    return reinterpret_cast<const T*>(place(current) + (notes >> 3 & 31) * 4);  // [size]
  }
  __device__ unsigned present() const { return notes & 7; }
  __device__ const T* matrices() const {
    return reinterpret_cast<const T*>(place(current) + block);  // [m][matrix_words * 16 bytes]
  }
  __device__ void next() {
    notes >>= 8;
    if (++current == Cut::slots) {
      current = 0;
      phase ^= 1;
    }
  }

  // Whether this thread is the one of its group that issues bulk copies. All threads of a warp call
  // it.
  __device__ bool issues_bulk_copies() const {
    int is_elected = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred own;\nelect.sync _|own, 0xffffffff;\nselp.b32 %0, 1, 0, own;\n}"
                 : "=r"(is_elected));
#endif
    return is_elected != 0 && (Cut::group == 32 || rank < 32);
  }

  // Issues the copy of a block to slot s, as the child that is `ahead` children behind the current
  // one.
  __device__ void issue_copy(int s, int ahead, const T* x, int code) {  // x: [size]
    const unsigned offset = unsigned(reinterpret_cast<unsigned long long>(x)) % line;
    if (issues_bulk_copies()) {
      // The number of words depends on where the block begins; for most sizes it does not. The
      // alignment of a complex number is that of one part.
      constexpr int minimum = (size * int(sizeof(T)) + 15) / 16 * 16;
      constexpr int limit = (size * int(sizeof(T)) + 31 - int(alignof(T))) / 16 * 16;
      const unsigned before = offset % 16;
      const unsigned count =
          minimum == limit ? minimum : (size * unsigned(sizeof(T)) + before + 15) / 16 * 16;
      barrier(s).arrive_and_expect(count);
      barrier(s).copy_bulk(place(s) + offset - before, reinterpret_cast<const char*>(x) - before,
                           count);
    }
    notes |= (offset / 4 << 3 | unsigned(code & 7)) << 8 * ahead;
  }
  // Issues the copies of this thread's words of the matrices of a load.
  __device__ void issue_matrix_copies(int s, const int (&begins)[passes], const T* all_matrices) {
    UNROLLED for (int pass = 0; pass < passes; ++pass) {
      const int word = pass * Cut::group + rank;
      if (begins[pass] >= 0)
        copy_asynchronously<16, false>(place(s) + block + word * 16,
                                       reinterpret_cast<const char*>(all_matrices) +
                                           (Index(begins[pass]) + word % matrix_words) * 16);
    }
  }
};

// A node and the thread group that computes it. Bundles come in the order in which they are
// computed: that of the last modes first, that of the first modes last, as its results are
// neighbours in y for neighbouring threads.
template <class T, class Cut, class First, class... Rest>
struct StagedNode {
  using Arguments = SegmentedArguments<T, StagedLoad>;
  static constexpr int bundles = 1 + int(sizeof...(Rest));
  static constexpr int size = (First::size * ... * Rest::size);  // elements of a block
  using Ring = ChildRing<T, Cut, First, size>;
  static constexpr int total_bytes = Ring::lines(size * int(sizeof(T)));
  static constexpr int room = total_bytes + Ring::bytes;  // bytes of shared memory of a group

  const Arguments& a;
  Ring& ring;
  T* total;  // [size]: sums of the bundles that are done, in shared memory
  Index node, entry;
  int member, groups_per_node;  // which group this is of those that share the node's loads
  const StagedLoad* loads;      // [end]: those of the node
  int done, asked, end;         // loads: the next to multiply, the next to copy, and all
  int code, begins[Ring::passes];  // of the next load to copy: its `child`; this thread's matrices
  const T *x, *scratch;  // [children][size], where child 0 would be, for the entry of outer

  __device__ StagedNode(const Arguments& all, Ring& own, T* sums, Index number, Index slab,
                        bool by_whole_block)
      : a(all), ring(own), total(sums), node(number), entry(slab) {
    member = by_whole_block ? ring.index : 0;
    groups_per_node = by_whole_block ? Cut::groups : 1;
    const Index* const starts = a.starts + node * bundles;  // [bundles + 1]
    loads = a.edges + starts[0];
    done = asked = member;
    end = int(starts[bundles] - starts[0]);
    x = a.x + entry * a.num_inputs * size;
    scratch = a.scratch + (entry * a.num_scratch - a.num_inputs) * size;
    asm("" : "+l"(x));  // compilers keep the address then, and do not compute it for each load
    read_load();
    int slot = ring.current;
    UNROLLED for (int s = 0; s < Cut::slots; ++s) {
      issue_copy(slot, s);
      slot = slot + 1 == Cut::slots ? 0 : slot + 1;
    }
    wait_for_copies<Cut::slots - 1>();
    Cut::sync_group(ring.index);
  }

  __device__ void run() { run_from<0, First, Rest...>(); }

 private:
  template <int g, class Own, class... Others>
  __device__ void run_from() {
    T sums[Own::items][Own::size] = {};  // [items][n^m]
    accumulate_loads<g, Own>(sums);
    if constexpr (sizeof...(Others) > 0) {
      add_to_total<g, Own>(sums);
      run_from<g + 1, Others...>();
    } else {
      write_results<Own>(sums);
    }
  }

  // Adds the products of all loads of bundle g to the thread's sums, and copies later loads
  // meanwhile.
  template <int g, class Own>
  __device__ void accumulate_loads(T (&sums)[Own::items][Own::size]) {  // [items][n^m]
    using Multiply = BundleMultiply<T, Own, Cut::column, Ring::matrix_words * 16 / int(sizeof(T))>;
    const int stop = int(a.starts[node * bundles + g + 1] - a.starts[node * bundles]);
    UNROLLED_BY(1) for (; done < stop; done += groups_per_node) {
      ring.wait_for_child();
      UNROLLED for (int j = 0; j < Own::items; ++j) {
        T values[Own::size];  // [n^m]
        read_values<Own>(values, ring.rank + j * Cut::group);
        Multiply::accumulate(sums[j], values, ring.present(), ring.matrices());
      }
      Cut::sync_group(ring.index);
      issue_copy(ring.current, Cut::slots);
      ring.next();
      wait_for_copies<Cut::slots - 1>();
      Cut::sync_group(ring.index);
    }
  }

  // Reads the child's elements at one of the thread's places.
  template <class Own>
  __device__ void read_values(T (&values)[Own::size], int place) const {  // [n^m]
    const T* const from =
        ring.child() + Own::begin_of(place < Own::places ? place : 0);  // [n^m], R apart
    UNROLLED for (int i = 0; i < Own::size; ++i) values[i] = from[i * Own::R];
  }

  // Reads the list's entry for the next load to copy.
  __device__ void read_load() {
    if (asked >= end) return;
    const int* const load = reinterpret_cast<const int*>(loads + asked);  // [1 + m]
    code = load[0];
    UNROLLED for (int pass = 0; pass < Ring::passes; ++pass) {
      const int word = pass * Cut::group + ring.rank;
      begins[pass] = word < Ring::words ? load[1 + word / Ring::matrix_words] : -1;
    }
  }

  // Issues the copies of the next load, and reads the entry of the one after it.
  __device__ void issue_copy(int slot, int ahead) {
    if (asked < end) {
      const int child = code >> max_bundle_modes;
      const bool of_x = !Cut::between || child < a.num_inputs;
      ring.issue_matrix_copies(slot, begins, a.matrices);
      ring.issue_copy(slot, ahead, (of_x ? x : scratch) + Index(child) * size, code);
      asked += groups_per_node;
      read_load();
    }
    commit_copies();
  }

  // Adds the thread's sums of bundle g to those of the bundles before it, in shared memory.
  template <int g, class Own>
  __device__ void add_to_total(const T (&sums)[Own::items][Own::size]) {  // [items][n^m]
    if (g > 0) Cut::sync_group(ring.index);  // bundles distribute sums over threads differently
    UNROLLED for (int j = 0; j < Own::items; ++j) {
      const int place = ring.rank + j * Cut::group;
      if (place >= Own::places) continue;
      T* const to = total + Own::begin_of(place);  // [n^m], R apart
      UNROLLED for (int i = 0; i < Own::size; ++i) {
        T& sum = to[i * Own::R];
        sum = g == 0 ? sums[j][i] : add(sum, sums[j][i]);
      }
    }
  }

  // Writes the node's results.
  struct Target {
    T* block;  // [size]
    T alpha;
    bool is_output, adds;

    __device__ Target(const Arguments& a, Index node, Index entry) : alpha(a.alpha) {
      const Index to = a.targets[node];
      is_output = a.makes_output(to);
      adds = is_output && a.accumulate;
      block = a.target(to, entry, size);
    }
    __device__ void write(int i, T sum) const {
      if (is_output) sum = multiply(alpha, sum);
      block[i] = adds ? add(block[i], sum) : sum;
    }
  };

  template <class Own>
  __device__ void write_results(T (&sums)[Own::items][Own::size]) {  // [items][n^m]
    if (groups_per_node > 1) {
      add_to_total<bundles - 1, Own>(sums);
      __syncthreads();
      write_sums_of_groups();
      __syncthreads();  // the sums' places are free again
      return;
    }
    Cut::sync_group(ring.index);
    const Target target(a, node, entry);
    UNROLLED for (int j = 0; j < Own::items; ++j) {
      const int place = ring.rank + j * Cut::group;
      if (place >= Own::places) continue;
      const int first = Own::begin_of(place);
      UNROLLED for (int i = 0; i < Own::size; ++i) {
        const int at = first + i * Own::R;
        target.write(at, add(total[at], sums[j][i]));
      }
    }
    Cut::sync_group(ring.index);
  }

  // Adds the totals of the groups that share the node, in the order of the groups.
  __device__ void write_sums_of_groups() const {
    constexpr int apart = room / int(sizeof(T));  // from one group's total to the next one's
    const Target target(a, node, entry);
    for (int i = ring.rank + Cut::group * member; i < size; i += Cut::group * groups_per_node) {
      T sum = total[i - member * apart];
      for (int other = 1; other < groups_per_node; ++other)
        sum = add(sum, total[i + (other - member) * apart]);
      target.write(i, sum);
    }
  }
};

// The arguments are those of general.cuh with loads in place of edges: those of node i and bundle g
// are starts[i * bundles + g] ... starts[i * bundles + g + 1] - 1, and inner is 1.
// nodes_by_group_count[0] nodes are computed by a whole thread block each, the others by a thread
// group each. Loads are added bundle by bundle, in the list's order, and the sums of thread groups
// in their order: the same bits from run to run.
template <class T, class Cut, class... Bundle>
__global__ void __launch_bounds__(Cut::block, Cut::blocks)
    staged_sums(const SegmentedArguments<T, StagedLoad> a) {
  wait_for_earlier_kernels();
  using Node = StagedNode<T, Cut, Bundle...>;
  using Ring = typename Node::Ring;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // [groups][room]
  const int index = int(threadIdx.x) / Cut::group, rank = int(threadIdx.x) % Cut::group;
  const Index block = blockIdx.x;
  const Index shared = a.nodes_by_group_count[0];  // nodes that take a whole thread block each
  const bool by_whole_block = block < shared;
  const Index node = by_whole_block ? block : shared + (block - shared) * Cut::groups + index;
  if (node >= a.nodes) return;
  char* const own = reinterpret_cast<char*>(shared_memory) + index * Node::room;  // [room]
  T* const sums = reinterpret_cast<T*>(own);                                      // [size]
  Ring ring(own + Node::total_bytes, index, rank);
  for (Index slab = blockIdx.y; slab < a.outer; slab += gridDim.y)
    Node(a, ring, sums, node, slab, by_whole_block).run();
}

}  // namespace batchkron
