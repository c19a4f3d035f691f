// y[node] (+)= alpha sum over the edges e of node of A_e ._mode x[child_e], of edges along a group of
// neighbouring modes, where all blocks that a tile of nodes reads fit in shared memory in part.
#pragma once

#include "asynchronous_copy.cuh"
#include "segmented_multiply.cuh"

namespace batchkron {

// Neighbouring modes of sizes n... of a block (before, n..., behind). A slice of a block is
// what these modes act on, `size` elements, for one index before and behind.
template <Index before_, Index behind_, int... n>
struct SweepGroup {
  static constexpr Index before = before_, behind = behind_;
  static constexpr int count = int(sizeof...(n)), size = (n * ... * 1);
  static constexpr int pitch = size | 1;  // in shared memory: lanes have slices beside each other
  // Through shared memory go so many elements of each result at a time.
  static constexpr int pieces = (size + 8) / 9, piece = (size + pieces - 1) / pieces;
  static constexpr int room = piece | 1;
  static constexpr bool is_last = behind == 1;  // slices are contiguous
};

// Nodes whose edges join blocks of a list, and slices of these blocks.
struct alignas(16) SweepTile {
  int first_child, children, first_node, nodes, first_slice, slices;  // 1 to 32 slices
  int unused[2];
};
struct alignas(8) SweepNode {
  int target;  // a block of y, or num_outputs + one of scratch; ~target: added to what is there
  int edge;    // its first edge
};
struct alignas(8) SweepEdge {
  unsigned child;  // a place in the tile's list · 8 + the mode in its group; mode 7 ends a list
  int matrix;      // where it begins, in words of 16 bytes
};

// x is (outer, num_inputs, block), y and scratch likewise, contiguous, all of their own. A tile's
// children are blocks of x, or num_inputs + those of scratch, that no tile of this launch makes. A
// node's edges are in the order of modes; two records follow the last list. Blocks of y alone are
// scaled by alpha, and added to if `accumulate`. Any element's alignment will do for x and y.
template <class T>
struct SweepTileArguments {
  const T* x;
  T* y;
  T* scratch;
  const SweepTile* tiles;
  const int* children;
  const SweepNode* nodes;
  const SweepEdge* edges;
  const T* matrices;  // 16-byte aligned, as those of segmented_multiply
  Index outer, num_inputs, num_outputs, num_scratch;
  Index accumulate;
  T alpha;
};

template <class T>
struct RealOf {
  using Type = T;
  static constexpr int parts = 1;
};
template <class Real>
struct RealOf<Complex<Real>> {
  using Type = Real;
  static constexpr int parts = 2;
};

// Copies an element to shared memory; it may lie at any multiple of a part's size.
template <class T>
__device__ void copy_element(T* shared, const T* global) {
  using Real = typename RealOf<T>::Type;
#pragma unroll
  for (int part = 0; part < RealOf<T>::parts; ++part)
    copy_asynchronously<int(sizeof(Real)), true>(reinterpret_cast<Real*>(shared) + part,
                                                 reinterpret_cast<const Real*>(global) + part);
}

constexpr int sweep_result_tile(int n, int most) {
  return n <= most ? n : (n + 7) / 8 * 8 <= (n + 3) / 4 * 4 && most == 8 ? 8 : 4;
}

// Columns of a square matrix as segmented_multiply has them, loaded in whole words.
template <class T, int n>
struct SweepMatrix {
  static constexpr int tile = sweep_result_tile(n, sizeof(T) == 16 ? 4 : 8);
  using Column = SegmentColumn<T, n, tile>;

  __device__ static void load(const T* matrix, int c, T (&column)[n]) {
    struct alignas(Pack<T, Column::width>::alignment) Word {
      Pack<T, Column::width> pack;
    };
#pragma unroll
    for (int first = 0; first < n; first += tile) {
      const Word word = *reinterpret_cast<const Word*>(matrix + c * Column::pitch + first);
#pragma unroll
      for (int t = 0; t < tile; ++t)
        if (first + t < n) column[first + t] = word.pack.values[t];
    }
  }
};

// sums[l, k, r] += column[k] child[l, c, r]
template <int L, int n, int R, int size, class T>
__device__ void add_column(T (&sums)[size], const T* child, int c, const T (&column)[n]) {
#pragma unroll
  for (int l = 0; l < L; ++l)
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const T value = child[(l * n + c) * R + r];
#pragma unroll
      for (int k = 0; k < n; ++k) {
        T& sum = sums[(l * n + k) * R + r];
        sum = multiply_add(sum, value, column[k]);
      }
    }
}

// A node's edges, records read two ahead.
template <class T>
struct EdgeReader {
  const SweepEdge* edges;
  const T* matrices;
  SweepEdge now, next;

  __device__ EdgeReader(const SweepEdge* first, const T* all)
      : edges(first), matrices(all), now(first[0]), next(first[1]) {}
  __device__ const T* matrix(const SweepEdge& edge) const {
    return matrices + Index(edge.matrix) * (16 / int(sizeof(T)));
  }
  __device__ bool is_along(int mode) const { return int(now.child & 7) == mode; }
  __device__ void advance() {
    now = next;
    next = edges[2];
    ++edges;
  }
};

// Adds the edges along mode `mode` of the group, and of those after it. is_ahead: small matrices are
// loaded an edge ahead.
template <bool is_ahead, int mode, int L, int n, int... after, int size, class T>
__device__ void add_modes(EdgeReader<T>& reader, const T* staged, int apart, T (&sums)[size]) {
  constexpr int R = size / (L * n);
  if constexpr (is_ahead && n * n * int(sizeof(T)) <= 128) {
    if (reader.is_along(mode)) {
      T matrix[n][n], following[n][n];
#pragma unroll
      for (int c = 0; c < n; ++c) SweepMatrix<T, n>::load(reader.matrix(reader.now), c, matrix[c]);
      for (;;) {
        const T* const child = staged + int(reader.now.child >> 3) * apart;
        const T* const ahead = reader.matrix(reader.next);
        reader.advance();
        const bool goes_on = reader.is_along(mode);
        if (goes_on)
#pragma unroll
          for (int c = 0; c < n; ++c) SweepMatrix<T, n>::load(ahead, c, following[c]);
#pragma unroll
        for (int c = 0; c < n; ++c) add_column<L, n, R>(sums, child, c, matrix[c]);
        if (!goes_on) break;
#pragma unroll
        for (int c = 0; c < n; ++c)
#pragma unroll
          for (int k = 0; k < n; ++k) matrix[c][k] = following[c][k];
      }
    }
  } else {
    while (reader.is_along(mode)) {
      const T* const child = staged + int(reader.now.child >> 3) * apart;
      const T* const matrix = reader.matrix(reader.now);
      reader.advance();
#pragma unroll
      for (int c = 0; c < n; ++c) {
        T column[n];
        SweepMatrix<T, n>::load(matrix, c, column);
        add_column<L, n, R>(sums, child, c, column);
      }
    }
  }
  if constexpr (sizeof...(after) > 0)
    add_modes<is_ahead, mode + 1, L * n, after...>(reader, staged, apart, sums);
}

template <class T, class Group, int warps, bool is_ahead>
struct SweepTileWork;

template <class T, Index before, Index behind, int... n, int warps, bool is_ahead>
struct SweepTileWork<T, SweepGroup<before, behind, n...>, warps, is_ahead> {
  using Group = SweepGroup<before, behind, n...>;
  static constexpr int size = Group::size, pitch = Group::pitch;
  static constexpr Index block = before * size * behind;
  const SweepTileArguments<T>& a;
  const SweepTile& tile;
  Index entry;  // of outer
  T* staged;    // (child, slice, pitch)
  T* exchange;  // of the warp, (lane, room)
  int warp, lane;

  __device__ const T* source(int child) const {
    return Index(child) < a.num_inputs
               ? a.x + (entry * a.num_inputs + child) * block
               : a.scratch + (entry * a.num_scratch + child - a.num_inputs) * block;
  }
  __device__ T* target(int to) const {
    return Index(to) < a.num_outputs
               ? a.y + (entry * a.num_outputs + to) * block
               : a.scratch + (entry * a.num_scratch + to - a.num_outputs) * block;
  }
  // Where a slice begins in its block; its elements are `behind` apart.
  __device__ static int slice_begin(int slice) {
    constexpr int apart = int(behind);
    return slice / apart * (size * apart) + slice % apart;
  }

  // Begins to copy the slices of all children, a warp's child by child.
  __device__ void stage() const {
    const int slices = tile.slices;
    const int row = lane / slices, rows = 32 / slices;  // where a warp has several rows at once
    const int begin = slice_begin(tile.first_slice + lane % slices);
    for (int some = warp; some < tile.children; some += 32 * warps) {
      const int mine = some + lane * warps;
      const int id = mine < tile.children ? a.children[tile.first_child + mine] : 0;
      for (int i = 0; i < 32 && some + i * warps < tile.children; ++i) {
        const T* const from = source(__shfl_sync(0xffffffffu, id, i));
        T* const to = staged + (some + i * warps) * slices * pitch;
        if constexpr (Group::is_last) {
          const T* const first = from + Index(tile.first_slice) * size;
          for (int e = lane; e < slices * size; e += 32)
            copy_element(to + (pitch == size ? e : e / size * pitch + e % size), first + e);
        } else if (row < rows) {
          for (int e = row; e < size; e += rows)
            copy_element(to + lane % slices * pitch + e, from + begin + Index(e) * behind);
        }
      }
    }
    commit_copies();
  }

  // Makes slices of nodes: a lane has one of each, a warp has nodes beside each other.
  __device__ void make() const {
    const int slices = tile.slices, together = 32 / slices, place = lane / slices;
    const int slice = lane % slices;
    for (int first = warp * together; first < tile.nodes; first += warps * together) {
      const int node = first + place;
      const bool has_node = place < together && node < tile.nodes;
      T sums[size] = {};
      T* to = nullptr;
      bool adds = false;
      if (has_node) {
        const SweepNode made = a.nodes[tile.first_node + node];
        EdgeReader<T> reader(a.edges + made.edge, a.matrices);
        const int number = made.target < 0 ? ~made.target : made.target;
        const bool is_output = Index(number) < a.num_outputs;
        to = target(number) + slice_begin(tile.first_slice + slice);
        adds = made.target < 0 || (a.accumulate && is_output);
        add_modes<is_ahead, 0, 1, n...>(reader, staged + slice * pitch, slices * pitch, sums);
        if (is_output)
#pragma unroll
          for (int e = 0; e < size; ++e) sums[e] = multiply(a.alpha, sums[e]);
      }
      if constexpr (Group::is_last) {
        write_contiguous(sums, to, adds);
      } else if (has_node) {
        if (adds)
#pragma unroll
          for (int e = 0; e < size; ++e) sums[e] = add(to[Index(e) * behind], sums[e]);
#pragma unroll
        for (int e = 0; e < size; ++e) to[Index(e) * behind] = sums[e];
      }
    }
  }

 private:
  // Lanes' slices are contiguous: neighbouring lanes write neighbouring elements of one, piece by
  // piece. A lane without a node has a null target.
  __device__ void write_contiguous(const T* sums, T* to, bool adds) const {
    constexpr int piece = Group::piece, room = Group::room;
    const unsigned all = 0xffffffffu, adding = __ballot_sync(all, adds);
    const unsigned long long address = reinterpret_cast<unsigned long long>(to);
#pragma unroll
    for (int begin = 0; begin < size; begin += piece) {
      __syncwarp();
#pragma unroll
      for (int e = 0; e < piece; ++e)
        if (begin + e < size) exchange[lane * room + e] = sums[begin + e];
      __syncwarp();
#pragma unroll
      for (int step = 0; step < piece; ++step) {
        const int i = step * 32 + lane, owner = i / piece, e = i % piece;
        T* const slice = reinterpret_cast<T*>(__shfl_sync(all, address, owner));
        if (slice == nullptr || begin + e >= size) continue;
        const T sum = exchange[owner * room + e];
        T& element = slice[begin + e];
        element = adding >> owner & 1 ? add(element, sum) : sum;
      }
    }
  }
};

// A thread block makes a tile: its children's slices come to shared memory once, and serve all
// edges along the group's modes. One lane owns a slice of a node, and adds its edges in their order.
template <class T, class Group, int threads, int blocks, bool is_ahead>
__global__ void __launch_bounds__(threads, blocks) sweep_tiles(const SweepTileArguments<T> a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  constexpr int warps = threads / 32;
  const SweepTile tile = a.tiles[blockIdx.x];
  const int warp = int(threadIdx.x) / 32;
  T* const exchange = reinterpret_cast<T*>(shared_memory);
  T* const staged = exchange + (Group::is_last ? threads * Group::room : 0);
  for (Index entry = blockIdx.y; entry < a.outer; entry += gridDim.y) {
    const SweepTileWork<T, Group, warps, is_ahead> work{
        a,    tile, entry, staged, exchange + warp * 32 * Group::room,
        warp, int(threadIdx.x) % 32};
    work.stage();
    wait_for_copies<0>();
    __syncthreads();
    work.make();
    __syncthreads();
  }
}

}  // namespace batchkron
