// segmented_multiply: sums over the edges of nodes,
//   y[node] = alpha sum over edges e of node of A_e ._mode(e) x[child(e)],  or +=  (accumulate),
// where ._m multiplies a block along its mode m by a small matrix. Any sizes and dtypes. A launch
// may also write such sums to vectors in scratch memory, which later launches read. The contract of
// the arguments is with SegmentedArguments below.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/mode_multiply.cuh"

namespace batchkron {

// The multiply of a block along one mode, (L, C, R) -> (L, K, R). A thread computes `tile` of the K
// results of `items` pairs (l, r) at a time.
template <Index L_, int C_, int K_, Index R_, int items_, int tile_>
struct SegmentMode {
  static constexpr Index L = L_, R = R_;
  static constexpr int C = C_, K = K_, items = items_, tile = tile_;
};

// How matrices are stored: [c][k], each column padded with zeros so that a tile of it is whole
// words. pitch: elements from a column to the next; width: elements that are read for a tile.
template <class T, int K, int tile>
struct SegmentColumn {
  static constexpr int bytes = tile * int(sizeof(T));
  static constexpr int unit = bytes > 8 ? 16 : bytes > 4 ? 8 : 4;
  static constexpr int width = (bytes + unit - 1) / unit * unit / int(sizeof(T));
  static constexpr int pitch = K > tile ? (K + tile - 1) / tile * tile : width;
  static_assert(K <= tile || width == tile, "tiles of one column follow each other");

  // How many columns c of a matrix a thread loads, with the block's entries for them, before it
  // multiplies the first: at most 160 bytes; 64 in thread blocks of more than 512 threads, which
  // have few registers for each. With one at a time a thread waits for every load
  // (docs/results/gpu-history.md).
  template <class Mode, int threads>
  __device__ static constexpr int at_once() {
    constexpr int bytes = threads > 512 ? 64 : 160;
    constexpr int limit = bytes / ((width + Mode::items) * int(sizeof(T)));
    return limit < 1 ? 1 : limit < Mode::C ? limit : Mode::C;
  }
};

// Nodes with many edges are shared by several thread groups, a power of two. Nodes are sorted by
// that number, the largest first; this is how many different numbers there are.
constexpr int num_group_counts = 5;  // 16, 8, 4, 2, 1

// How threads are divided. A thread group of `group` threads adds edges of one node; a thread block
// has `groups` of them. A thread group computes `width` neighbouring columns of the innermost axis
// `inner`, 1 if inner is 1. in_shared: between two modes the sums are kept in shared memory,
// otherwise in the target. All are powers of two.
template <int group_, int groups_, int width_, bool in_shared_>
struct SegmentCut {
  static constexpr int group = group_, groups = groups_, width = width_, block = group * groups;
  static constexpr bool in_shared = in_shared_;
  static constexpr int max_groups_per_node =
      groups >> num_group_counts ? 1 << (num_group_counts - 1) : groups;
  static_assert(block <= 256 || (group > 32 && groups <= 8), "barriers have numbers up to 15");

  // A mask of the lanes of this warp in the calling thread's group of `threads` threads, a power of
  // two.
  __device__ static unsigned lanes(int threads) {
    return threads < 32 ? ((1u << threads) - 1) << (threadIdx.x % 32 & -threads) : ~0u;
  }
  __device__ static void sync_group(int index) {
    if constexpr (group <= 32) __syncwarp(lanes(group));
    else if constexpr (groups == 1) __syncthreads();
    else asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(group) : "memory");
  }
  // A barrier of the thread groups that share a node.
  __device__ static void sync_node_groups(int index, int groups_per_node) {
    if (groups_per_node == 1)
      sync_group(index);
    else if (group * groups_per_node <= 32)
      __syncwarp(lanes(group * groups_per_node));
    else
      asm volatile("bar.sync %0, %1;" ::"r"(9 + index / groups_per_node),
                   "r"(group * groups_per_node)
                   : "memory");
  }
};

struct alignas(8) SegmentEdge {
  int child;   // number of a block of x, or num_inputs + number of a block of scratch memory
  int matrix;  // where the matrix begins in `matrices`, in words of 16 bytes
};

// x is (outer, num_inputs, block, inner), y is (outer, num_outputs, block, inner) and scratch is
// (outer, num_scratch, block, inner), all contiguous, aligned to an element, without overlap. The
// edges of node i along mode m are starts[i * modes + m] ... starts[i * modes + m + 1] - 1. Node i
// writes block targets[i] of y, or block targets[i] - num_outputs of scratch, which no edge of this
// launch reads. Blocks of y are scaled by alpha, and added to if `accumulate`; otherwise what y
// held before is never read. Blocks of scratch are overwritten unscaled. A node without edges
// becomes zero, or stays if `accumulate`. Nodes are sorted by the number of thread groups that
// share them, the largest first; nodes_by_group_count has the numbers of nodes.
template <class T, class Edge = SegmentEdge>
struct SegmentedArguments {
  const T* x;
  T* y;
  T* scratch;
  const Index* starts;
  const Edge* edges;
  const int* targets;
  const T* matrices;  // 16-byte aligned
  Index nodes;
  Index nodes_by_group_count[num_group_counts];
  Index outer, inner, num_inputs, num_outputs, num_scratch;
  Index accumulate;
  T alpha;

  // Whether target `to` is a block of y.
  __device__ bool makes_output(Index to) const { return to < num_outputs; }
  // The block of target `to`, of `size` elements, for an entry of outer.
  __device__ T* target(Index to, Index entry, Index size) const {
    return makes_output(to) ? y + (entry * num_outputs + to) * size
                            : scratch + (entry * num_scratch + to - num_outputs) * size;
  }
};

// The node of a thread, -1 for none, and which of the thread groups that share the node's edges its
// group is.
struct GroupPlace {
  Index node;
  int member, groups_per_node;

  template <class Cut>
  __device__ static GroupPlace of(const Index (&nodes_by_group_count)[num_group_counts],
                                  int index) {
    Index block = blockIdx.x, first = 0;
    UNROLLED for (int groups_per_node = Cut::max_groups_per_node, kind = 0; groups_per_node > 0;
         groups_per_node /= 2, ++kind) {
      const int own = Cut::groups / groups_per_node;
      const Index nodes = nodes_by_group_count[kind], blocks = (nodes + own - 1) / own;
      if (block < blocks) {
        const Index at = block * own + index / groups_per_node;
        return {at < nodes ? first + at : -1, index % groups_per_node, groups_per_node};
      }
      block -= blocks;
      first += nodes;
    }
    return {-1, 0, 1};
  }
};

// A node and the thread group that adds its edges, or a part of them.
template <class T, class Cut, class Size, Index input, Index output, int modes>
struct SegmentGroup {
  using Arguments = SegmentedArguments<T>;
  const Arguments& a;
  const GroupPlace place;
  const Index entry, column;        // entry of outer, first column of inner
  const int index, rank;            // of the group in its thread block, of the thread in its group
  T* const sums;                    // the thread group's sums of a block, (output, width)
  const T *x, *scratch;             // where child 0 would be, for the entry and column
  const Index to;                   // target of the node
  const SegmentEdge* edges;         // first edge of the node
  int ends[modes];                  // where each mode's edges end, from `edges`
  int edge;                         // number of the thread group's next edge
  SegmentEdge next;                 // that edge, loaded ahead
  bool is_first = true;             // whether there are no sums yet

  __device__ SegmentGroup(const Arguments& all, GroupPlace own, Index slab, Index first, int group,
                         int thread, T* memory)
      : a(all), place(own), entry(slab), column(first), index(group), rank(thread), sums(memory),
        to(all.targets[own.node]), edge(own.member) {
    const Index* const starts = a.starts + own.node * modes;
    edges = a.edges + starts[0];
    UNROLLED for (int m = 0; m < modes; ++m) ends[m] = int(starts[m + 1] - starts[0]);
    look(edge, next);
    x = a.x + entry * a.num_inputs * input * inner() + column;
    scratch = a.scratch + (entry * a.num_scratch - a.num_inputs) * input * inner() + column;
  }

  __device__ Index inner() const { return Cut::width == 1 ? 1 : a.inner; }
  __device__ bool has(Index w) const { return Cut::width == 1 || column + w < a.inner; }

  __device__ const T* source(int child) const {
    return (child < a.num_inputs ? x : scratch) + child * input * inner();
  }
  // Loads edge e of the node, if there is one.
  __device__ void look(int e, SegmentEdge& found) const {
    if (e < ends[modes - 1]) found = edges[e];
  }
  __device__ bool makes_output() const { return a.makes_output(to); }
  __device__ T* target() const { return a.target(to, entry, output * inner()) + column; }
  // Writes a sum to an element of the target, or adds it; those of y are scaled by alpha.
  __device__ void write(T* element, T sum, bool adds) const {
    if (makes_output()) sum = multiply(a.alpha, sum);
    *element = adds ? add(*element, sum) : sum;
  }
  __device__ bool adds_to_target() const { return a.accumulate && makes_output(); }

  // Adds the thread group's edges along mode `m` to its sums. Thread groups that share the node
  // take its edges in turn; the turn goes on from mode to mode. Without shared memory the thread
  // blocks along z of the grid divide the items of the only mode.
  template <class Mode>
  __device__ void add_edges(int m) {
    if (ends[m] == (m == 0 ? 0 : ends[m - 1])) return;
    if (!is_first) Cut::sync_group(index);  // each mode divides the sums among threads differently
    constexpr Size all = Size(Mode::L * Mode::R * Cut::width);
    constexpr Size step = Size(Cut::group) * Mode::items;
    const Size pieces = Cut::in_shared ? 1 : Size(gridDim.z);
    const Size piece = Cut::in_shared ? 0 : Size(blockIdx.z);
    const int begin = edge;
    for (int k = 0; k < Mode::K; k += Mode::tile)
      for (Size first = piece * step; first < all; first += pieces * step) {
        if (edge != begin) look(edge = begin, next);
        add_tile<Mode>(ends[m], k, first + rank, all);
      }
    is_first = false;
  }

  // Adds the thread group's edges before `end` to results k ... k + tile - 1 of the items i, i +
  // thread group, ...
  template <class Mode>
  __device__ void add_tile(int end, int k, Size i, Size all) {
    constexpr Size R = Size(Mode::R), W = Cut::width;
    Size from[Mode::items];
    T results[Mode::items][Mode::tile] = {};
    UNROLLED for (int j = 0; j < Mode::items; ++j) {
      const Size item = i + j * Cut::group < all ? i + j * Cut::group : all - 1;
      const Size w = has(item % W) ? item % W : 0;
      from[j] = (item / W / R * Mode::C * R + item / W % R) * Size(inner()) + w;
    }
    constexpr int limit =
        SegmentColumn<T, Mode::K, Mode::tile>::template at_once<Mode, Cut::block>();
    while (edge < end) {
      const T* const block = source(next.child);
      const T* const matrix = a.matrices + Index(next.matrix) * (16 / int(sizeof(T))) + k;
      look(edge += place.groups_per_node, next);
      constexpr int whole = Mode::C / limit * limit;
      UNROLLED_BY(4) for (int c = 0; c < whole; c += limit)
        add_columns<Mode, limit>(results, block, matrix, from, c);
      if constexpr (Mode::C > whole)
        add_columns<Mode, Mode::C - whole>(results, block, matrix, from, whole);
    }
    UNROLLED for (int j = 0; j < Mode::items; ++j) {
      const Size item = i + j * Cut::group, w = item % W;
      if (item >= all) continue;
      const Size first = item / W / R * Mode::K * R + item / W % R;
      UNROLLED for (int t = 0; t < Mode::tile; ++t)
        if (k + t < Mode::K) keep(first + (k + t) * R, w, results[j][t]);
    }
  }

  // Adds the products with columns c ... c + count - 1 of an edge's matrix. All elements are loaded
  // before the first is used: without the __syncwarp between, compilers make each load wait for the
  // one before.
  template <class Mode, int count>
  __device__ void add_columns(T (&results)[Mode::items][Mode::tile], const T* block, const T* matrix,
                              const Size (&from)[Mode::items], int c) const {
    using Column = SegmentColumn<T, Mode::K, Mode::tile>;
    struct alignas(Pack<T, Column::width>::alignment) Word {
      Pack<T, Column::width> pack;
    };
    const Size apart = Size(Mode::R) * Size(inner());
    Word words[count];
    T values[count][Mode::items];
    UNROLLED for (int l = 0; l < count; ++l) {
      words[l] = *reinterpret_cast<const Word*>(matrix + (c + l) * Column::pitch);
      UNROLLED for (int j = 0; j < Mode::items; ++j)
        values[l][j] = block[from[j] + (c + l) * apart];
    }
    if constexpr (count > 1) __syncwarp(Cut::lanes(Cut::group));
    UNROLLED for (int l = 0; l < count; ++l)
      UNROLLED for (int j = 0; j < Mode::items; ++j)
        UNROLLED for (int t = 0; t < Mode::tile; ++t)
          results[j][t] = multiply_add(results[j][t], values[l][j], words[l].pack.values[t]);
  }

  // Adds `value` to the thread group's sum of element i, column w.
  __device__ void keep(Size i, Size w, T value) const {
    if constexpr (Cut::in_shared) {
      T& sum = sums[i * Cut::width + w];
      sum = is_first ? value : add(sum, value);
    } else if (has(w)) {
      write(target() + i * Size(inner()) + w, value, !is_first || adds_to_target());
    }
  }

  // Writes the sums of all modes to the target, or zeros if there are no edges.
  __device__ void finish() const {
    const bool is_shared = Cut::in_shared && !is_first;
    if (is_shared) Cut::sync_node_groups(index, place.groups_per_node);
    if (is_first ? !adds_to_target() : is_shared) write_all();
    Cut::sync_node_groups(index, place.groups_per_node);  // the sums' places are free again
  }

 private:
  __device__ void write_all() const {
    constexpr Size all = Size(output * Cut::width);
    const bool adds = adds_to_target();
    const Size threads = Size(Cut::group) * place.groups_per_node * Size(gridDim.z);
    T* const block = target();
    for (Size i = rank + Size(Cut::group) * (place.member + Size(blockIdx.z)); i < all;
         i += threads) {
      const Size w = i % Cut::width;
      if (!has(w)) continue;
      T sum{};
      if (!is_first)
        for (int other = 0; other < place.groups_per_node; ++other) {
          const T part = sums[i + Size(other - place.member) * all];
          sum = other == 0 ? part : add(sum, part);
        }
      write(block + i / Cut::width * Size(inner()) + w, sum, adds);
    }
  }
};

// A thread group adds a node's edges mode by mode, in the list's order; each thread computes along
// whole fibres of the mode, and the sums of all modes are added in shared memory. Where thread
// groups share a node, their sums are added in the order of the thread groups: the same bits from
// run to run.
template <class T, class Cut, class... Mode>
__global__ void __launch_bounds__(Cut::block)
    segmented_multiply(const SegmentedArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr Index inputs[] = {Mode::L * Mode::C * Mode::R...};
  constexpr Index outputs[] = {Mode::L * Mode::K * Mode::R...};
  constexpr Index input = inputs[0], output = outputs[0];
  constexpr Index largest = (input > output ? input : output) * Cut::width;
  using Size = typename Choice<Cut::width == 1 && (largest < (1 << 30)), int, Index>::Type;
  extern __shared__ __align__(16) unsigned char shared_memory[];

  const int index = int(threadIdx.x) / Cut::group, rank = int(threadIdx.x) % Cut::group;
  const GroupPlace place = GroupPlace::of<Cut>(a.nodes_by_group_count, index);
  if (place.node < 0) return;
  T* const sums = reinterpret_cast<T*>(shared_memory) + Index(index) * output * Cut::width;
  const Index tiles = Cut::width == 1 ? 1 : (a.inner + Cut::width - 1) / Cut::width;
  for (Index slab = blockIdx.y; slab < a.outer * tiles; slab += gridDim.y) {
    SegmentGroup<T, Cut, Size, input, output, int(sizeof...(Mode))> group(
        a, place, slab / tiles, slab % tiles * Cut::width, index, rank, sums);
    int m = 0;
    (group.template add_edges<Mode>(m++), ...);
    group.finish();
  }
}

}  // namespace batchkron
