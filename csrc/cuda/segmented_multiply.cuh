// y[node] (+)= alpha sum over the edges e of node of A_e ._mode x[child_e]: multiplies of blocks
// along one mode each, summed over a list of edges; and such sums into vectors in between.
#pragma once

#include "launch_order.cuh"
#include "mode_multiply.cuh"

namespace batchkron {

// A mode's multiply (L, C, R) -> (L, K, R) of a block. A thread has `items` pairs (l, r) at a time,
// and `tile` of the K results of each.
template <Index L_, int C_, int K_, Index R_, int items_, int tile_>
struct SegmentMode {
  static constexpr Index L = L_, R = R_;
  static constexpr int C = C_, K = K_, items = items_, tile = tile_;
};

// Columns of one matrix in memory, [c][k]: a tile of each is read in whole words, and its elements
// beyond K are zero.
template <class T, int K, int tile>
struct SegmentColumn {
  static constexpr int bytes = tile * int(sizeof(T));
  static constexpr int unit = bytes > 8 ? 16 : bytes > 4 ? 8 : 4;
  static constexpr int width = (bytes + unit - 1) / unit * unit / int(sizeof(T));
  static constexpr int pitch = K > tile ? (K + tile - 1) / tile * tile : width;
  static_assert(K <= tile || width == tile, "tiles of one column follow each other");
};

// How threads are cut: `team` of them own a node, `teams` are in a thread block. A result has
// `width` neighbouring columns of the innermost axis, 1 where that has one. in_shared: between
// modes sums are kept in shared memory, otherwise in the target.
template <int team_, int teams_, int width_, bool in_shared_>
struct SegmentCut {
  static constexpr int team = team_, teams = teams_, width = width_, block = team * teams;
  static constexpr bool in_shared = in_shared_;

  __device__ static void sync_team(int index) {
    if constexpr (team < 32)
      __syncwarp(((1u << team % 32) - 1) << (threadIdx.x % 32 / team * team));
    else if constexpr (team == 32)
      __syncwarp();
    else if constexpr (teams == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(team) : "memory");
  }
};

struct alignas(8) SegmentEdge {
  int child;   // a block of x, or num_inputs + a block of the scratch memory
  int matrix;  // where it begins, in words of 16 bytes
};

// x is (outer, num_inputs, block, inner), y and scratch likewise, contiguous, all of their own.
// Edges of node i and mode m: starts[i * modes + m] to starts[i * modes + m + 1] - 1. Node i makes
// block targets[i] of y, or of scratch, from num_outputs on, which no edge of this launch reads. Of
// y's blocks alone: they are scaled by alpha, and overwritten unless `accumulate`. Any element's
// alignment will do for x and y; what is overwritten is never read.
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
  Index crews;  // so many first nodes have a whole thread block each, whose teams share the edges
  Index outer, inner, num_inputs, num_outputs, num_scratch;
  Index accumulate;
  T alpha;

  __device__ bool makes_output(Index node) const { return targets[node] < num_outputs; }
  // The block of `size` elements that a node makes for an entry of outer.
  __device__ T* target(Index node, Index entry, Index size) const {
    const Index to = targets[node];
    return to < num_outputs
               ? y + (entry * num_outputs + to) * size
               : scratch + (entry * num_scratch + to - num_outputs) * size;
  }
};

// A node and the threads that make it.
template <class T, class Cut, class Size, Index input, Index output, int modes>
struct SegmentTeam {
  using Arguments = SegmentedArguments<T>;
  const Arguments& a;
  Index node, entry, column;  // entry of outer, first column of inner
  int index, rank;            // of the team in its thread block, of the thread in its team
  int member, crew;           // of the teams that share the node's edges
  T* sums;                    // output block, (output, width)
  bool is_first = true;       // no sums yet

  __device__ Index inner() const { return Cut::width == 1 ? 1 : a.inner; }
  __device__ bool has(Index w) const { return Cut::width == 1 || column + w < a.inner; }

  __device__ const T* source(int child) const {
    const Index from = child;
    const T* const block = from < a.num_inputs
                               ? a.x + (entry * a.num_inputs + from) * input * inner()
                               : a.scratch + (entry * a.num_scratch + from - a.num_inputs) *
                                                 input * inner();
    return block + column;
  }
  __device__ bool makes_output() const { return a.makes_output(node); }
  __device__ T* target() const { return a.target(node, entry, output * inner()) + column; }
  // Writes a sum to an element of the target, or adds it.
  __device__ void write(T* element, T sum, bool adds) const {
    if (makes_output()) sum = multiply(a.alpha, sum);
    *element = adds ? add(*element, sum) : sum;
  }
  __device__ bool adds_to_target() const { return a.accumulate && makes_output(); }

  // Adds the edges of mode `m` of the node to its sums. Thread blocks of one node along z take
  // different items of its only mode.
  template <class Mode>
  __device__ void add_edges(int m) {
    const Index begin = a.starts[node * modes + m], end = a.starts[node * modes + m + 1];
    if (begin == end) return;
    if (!is_first) Cut::sync_team(index);  // the sums of another mode are in other threads' places
    constexpr Size all = Size(Mode::L * Mode::R * Cut::width);
    constexpr Size step = Size(Cut::team) * Mode::items;
    const Size pieces = Cut::in_shared ? 1 : Size(gridDim.z);
    const Size piece = Cut::in_shared ? 0 : Size(blockIdx.z);
    for (int k = 0; k < Mode::K; k += Mode::tile)
      for (Size first = piece * step; first < all; first += pieces * step)
        add_tile<Mode>(begin, end, k, first + rank, all);
    is_first = false;
  }

  // The results k ... k + tile - 1 of the items i, i + team, ...
  template <class Mode>
  __device__ void add_tile(Index begin, Index end, int k, Size i, Size all) {
    using Column = SegmentColumn<T, Mode::K, Mode::tile>;
    constexpr Size R = Size(Mode::R), W = Cut::width;
    struct alignas(Pack<T, Column::width>::alignment) Word {
      Pack<T, Column::width> pack;
    };
    Size from[Mode::items];
    T results[Mode::items][Mode::tile] = {};
#pragma unroll
    for (int j = 0; j < Mode::items; ++j) {
      const Size item = i + j * Cut::team < all ? i + j * Cut::team : all - 1;
      const Size w = has(item % W) ? item % W : 0;
      from[j] = (item / W / R * Mode::C * R + item / W % R) * Size(inner()) + w;
    }
    const Size apart = R * Size(inner());
    for (Index e = begin + member; e < end; e += crew) {
      const SegmentEdge edge = a.edges[e];
      const T* const block = source(edge.child);
      const T* const matrix = a.matrices + Index(edge.matrix) * (16 / int(sizeof(T))) + k;
#pragma unroll 8
      for (int c = 0; c < Mode::C; ++c) {
        const Word word = *reinterpret_cast<const Word*>(matrix + c * Column::pitch);
#pragma unroll
        for (int j = 0; j < Mode::items; ++j) {
          const T value = block[from[j] + c * apart];
#pragma unroll
          for (int t = 0; t < Mode::tile; ++t)
            results[j][t] = multiply_add(results[j][t], value, word.pack.values[t]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < Mode::items; ++j) {
      const Size item = i + j * Cut::team, w = item % W;
      if (item >= all) continue;
      const Size place = item / W / R * Mode::K * R + item / W % R;
#pragma unroll
      for (int t = 0; t < Mode::tile; ++t)
        if (k + t < Mode::K) keep(place + (k + t) * R, w, results[j][t]);
    }
  }

  // Adds to a sum of the node: element `place`, column w.
  __device__ void keep(Size place, Size w, T value) const {
    if constexpr (Cut::in_shared) {
      T& sum = sums[place * Cut::width + w];
      sum = is_first ? value : add(sum, value);
    } else if (has(w)) {
      write(target() + place * Size(inner()) + w, value, !is_first || adds_to_target());
    }
  }

  // Writes the sums, or zeros, after all modes.
  __device__ void finish() const {
    const bool is_shared = Cut::in_shared && !is_first;
    if (crew > 1)
      __syncthreads();
    else if (is_shared)
      Cut::sync_team(index);
    if (is_first ? !adds_to_target() : is_shared) write_all();
    if (crew > 1)
      __syncthreads();
    else
      Cut::sync_team(index);  // the sums' places are free again
  }

 private:
  __device__ void write_all() const {
    constexpr Size all = Size(output * Cut::width);
    const bool adds = adds_to_target();
    const Size threads = Size(Cut::team) * crew * Size(gridDim.z);
    T* const block = target();
    for (Size i = rank + Size(Cut::team) * (member + Size(blockIdx.z)); i < all; i += threads) {
      const Size w = i % Cut::width, place = i / Cut::width;
      if (!has(w)) continue;
      T sum{};
      if (!is_first)
        for (int other = 0; other < crew; ++other) {
          const T part = sums[i + Size(other - member) * all];
          sum = other == 0 ? part : add(sum, part);
        }
      write(block + place * Size(inner()) + w, sum, adds);
    }
  }
};

// A node's edges are added mode by mode, in their order, by threads that have whole fibres along
// the mode; the modes' sums meet in shared memory. The same bits from run to run.
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

  const int index = int(threadIdx.x) / Cut::team, rank = int(threadIdx.x) % Cut::team;
  const Index block = blockIdx.x;
  const bool is_crew = block < a.crews;
  const Index node = is_crew ? block : a.crews + (block - a.crews) * Cut::teams + index;
  if (node >= a.nodes) return;
  T* const sums = reinterpret_cast<T*>(shared_memory) + Index(index) * output * Cut::width;
  const Index tiles = Cut::width == 1 ? 1 : (a.inner + Cut::width - 1) / Cut::width;
  for (Index slab = blockIdx.y; slab < a.outer * tiles; slab += gridDim.y) {
    SegmentTeam<T, Cut, Size, input, output, int(sizeof...(Mode))> team{
        a,
        node,
        slab / tiles,
        slab % tiles * Cut::width,
        index,
        rank,
        is_crew ? index : 0,
        is_crew ? Cut::teams : 1,
        sums};
    int m = 0;
    (team.template add_edges<Mode>(m++), ...);
    team.finish();
  }
}

}  // namespace batchkron
