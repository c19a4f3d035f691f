// y = alpha K x, or +=, for a Kronecker-sparse matrix K and many vectors x.
#pragma once

#include <algorithm>

#include "engine/kron_sparse/panels.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// The work is cut into items of some vectors, one of the a blocks, one piece of d (or all), and some
// panels. A thread copies the item's vectors to a tile, block of terms by block of terms, and
// multiplies it by one panel after another.
//
// If inner is 1, a vector of the kernels has pieces of different vectors of x, or a whole piece of
// one. Else it has neighbouring vectors of x, and the matrix is packed in pieces of one element.
template <class T>
class SparseMultiply {
 public:
  SparseMultiply(const SparseShape& shape, const SparsePanels<T>& panels)
      : shape_(shape), panels_(panels), kernels_(sparse_kernels<T>()) {}

  void run(const SparseCall<T>& call, const ThreadTeam& team) const {
    const int threads = team.threads();
    const Work work = cut(call, threads);
    const Index lanes = kernels_.lanes;
    const Index x_tile = padded<T>(work.groups * work.vector_stride);
    const Index y_tile = padded<T>(
        is_piecewise(call) ? work.groups * panels_.pieces_in_tile() * work.height * lanes : 0);
    thread_local Workspace workspace;
    T* scratch = static_cast<T*>(workspace.reserve(bytes_of<T>(x_tile + y_tile, threads)));
    const Index items = work.outer * work.places * work.pieces * work.blocks * work.parts;
    team.run(items, [&](Index begin, Index end, int thread) {
      T* tile = scratch + (x_tile + y_tile) * thread;
      for (Index index = begin; index < end; ++index)
        run_item(call, work, index, tile, tile + x_tile);
    });
  }

 private:
  struct Work {
    Index outer;   // vectors before, where inner > 1; else 1
    Index together;  // of the a blocks, in an item
    Index places;  // of items in a
    Index pieces;  // that items are cut into
    Index blocks;  // of groups; a group is a vector of the kernels
    Index groups;  // in a block
    Index all;     // groups of all blocks
    Index parts;   // of the panels
    Index height;  // rows of y in a tile, for each piece
    // Elements between the terms of one piece and of the next in a tile of x, an odd number of
    // vectors and so no power of two; and between the pieces of one vector and of the next.
    Index piece_stride, vector_stride;
  };
  struct Item {
    Index outer, i;
    Index j, pieces;     // the first piece, and how many
    Index together;      // blocks from i on
    Index first, count;  // groups
    Index panel, end;    // panels
  };

  bool is_piecewise(const SparseCall<T>& call) const {
    return call.inner == 1 && panels_.piece() < kernels_.lanes;
  }

  // How many of the a blocks are so small that they go together, to fill vectors.
  Index small_blocks() const {
    if (panels_.terms() < shape_.c) return 1;
    const Index size = std::max<Index>(1, std::max(shape_.b, shape_.c) * shape_.d);
    const Index wanted = kMinVectors * kernels_.lanes;
    return std::clamp<Index>((wanted + size - 1) / size, 1, shape_.a);
  }

  Work cut(const SparseCall<T>& call, int threads) const {
    Work work{};
    const Index unit = kernels_.vectors;
    const bool piecewise = is_piecewise(call);
    if (call.inner == 1) {
      const Index rows = kernels_.lanes / panels_.piece();
      work.outer = 1;
      work.all = (call.outer + rows - 1) / rows;
    } else {
      work.outer = call.outer;
      work.all = (call.inner + kernels_.lanes - 1) / kernels_.lanes;
    }
    const Index in_tile = panels_.pieces_in_tile();
    work.pieces = piecewise ? (panels_.pieces() + in_tile - 1) / in_tile : panels_.pieces();
    work.together = piecewise && work.pieces == 1 ? small_blocks() : 1;
    work.places = (shape_.a + work.together - 1) / work.together;
    work.piece_stride = (work.together * panels_.terms() | 1) * kernels_.lanes;
    work.vector_stride = in_tile * work.piece_stride;
    const Index vector = work.vector_stride * Index(sizeof(T));
    const Index bytes = call.inner > 1 ? kColumnBytes : kRowBytes;
    const Index most = std::max(unit, bytes / vector / unit * unit);
    const Index others = work.outer * work.places * work.pieces;
    // as many blocks as fill the tiles, and at least some for each thread
    const Index wanted = threads > 1 ? (kItemsPerThread * threads + others - 1) / others : 1;
    const Index blocks = std::max((work.all + most - 1) / most, wanted);
    work.groups = ((work.all + blocks - 1) / blocks + unit - 1) / unit * unit;
    work.groups = std::min(work.groups, work.all);
    work.blocks = (work.all + work.groups - 1) / work.groups;
    if (work.together > 1) {
      work.parts = 1;
      work.height = work.together * shape_.b;
      return work;
    }
    const Index parts = (wanted + work.blocks - 1) / work.blocks;
    work.parts = std::clamp<Index>(parts, 1, Index(panels_.panels().size()));
    // rows that fill some vectors when they are written, of whole panels
    const Index panel = kPanelRows[kPanelSizes - 1];
    const Index rows = kMinVectors * kernels_.lanes / shape_.d;
    work.height = panel * std::max<Index>(1, (rows + panel - 1) / panel);
    return work;
  }

  void run_item(const SparseCall<T>& call, const Work& work, Index index, T* tile, T* sums) const {
    const Index panels = Index(panels_.panels().size());
    Item item{};
    const Index part = index % work.parts;
    index /= work.parts;
    item.panel = part * panels / work.parts;
    item.end = (part + 1) * panels / work.parts;
    item.first = index % work.blocks * work.groups;
    item.count = std::min(work.groups, work.all - item.first);
    index /= work.blocks;
    const Index in_tile = is_piecewise(call) ? panels_.pieces_in_tile() : 1;
    item.j = index % work.pieces * in_tile;
    item.pieces = std::min(in_tile, panels_.pieces() - item.j);
    index /= work.pieces;
    item.i = index % work.places * work.together;
    item.together = std::min(work.together, shape_.a - item.i);
    item.outer = index / work.places;
    if (call.inner > 1) return run_columns(call, work, item, tile);
    if (is_piecewise(call)) return run_pieces(call, work, item, tile, sums);
    run_rows(call, work, item, tile);
  }

  // Calls body(l, terms) for each block of terms.
  template <class Body>
  void each_block(Body body) const {
    for (Index l = 0; l < shape_.c; l += panels_.terms())
      body(l, std::min(panels_.terms(), shape_.c - l));
  }

  // A kernel is the product of one panel with all vectors of an item. `task` says where x and y are
  // for the first row.
  void multiply_panels(const SparseCall<T>& call, Index i, Index j, Index l, Index begin, Index end,
                       SparsePanel<T> task) const {
    T* y = task.y;
    const Index origin = panels_.panels()[std::size_t(begin)].first;
    for (Index at = begin; at < end; ++at) {
      const SparseRows& rows = panels_.panels()[std::size_t(at)];
      task.f = panels_.panel(call.packed, i, j, l, task.terms, rows);
      task.rows = rows.rows;
      task.y = y + (rows.first - origin) * task.y_k;
      kernels_.multiply[panels_.power()][rows.size](task);
    }
  }

  // Whether x is copied to a tile: not where few panels would read it.
  static bool copies(const Item& item) { return item.end - item.panel > kMaxDirectPanels; }

  // Vectors of one whole piece of one row of x.
  void run_rows(const SparseCall<T>& call, const Work& work, const Item& item, T* tile) const {
    const Index lanes = kernels_.lanes, d = shape_.d;
    const Index x_row = shape_.a * shape_.c * d, y_row = shape_.a * shape_.b * d;
    each_block([&](Index l, Index terms) {
      const T* x = call.x + item.first * x_row + (item.i * shape_.c + l) * d + item.j * lanes;
      const Index k = panels_.panels()[std::size_t(item.panel)].first;
      T* y = call.y + item.first * y_row + (item.i * shape_.b + k) * d + item.j * lanes;
      SparsePanel<T> task{y,     x,     nullptr, terms, 0,          item.count,
                          lanes, d,     x_row,   d,     y_row,      call.alpha,
                          call.accumulate || l > 0};
      if (copies(item)) {
        kernels_.copy_vectors(tile, x, item.count, terms, work.vector_stride, lanes, x_row, d);
        task.x = tile;
        task.x_l = lanes;
        task.x_v = work.vector_stride;
      }
      multiply_panels(call, item.i, item.j, l, item.panel, item.end, task);
    });
  }

  // Vectors with a piece of several rows of x each.
  void run_pieces(const SparseCall<T>& call, const Work& work, const Item& item, T* tile,
                  T* sums) const {
    const Index lanes = kernels_.lanes, b = shape_.b, c = shape_.c, d = shape_.d;
    const Index x_row = shape_.a * c * d, y_row = shape_.a * b * d;
    const Index rows = lanes / panels_.piece(), offset = item.j * panels_.piece();
    const Index sums_j = work.height * lanes, sums_v = item.pieces * sums_j;
    const auto first_row = [&](Index v) { return (item.first + v) * rows; };
    const auto count = [&](Index v) { return std::min(rows, call.outer - first_row(v)); };
    const auto& panels = panels_.panels();
    each_block([&](Index l, Index terms) {
      for (Index v = 0; v < item.count; ++v)
        kernels_.to_pieces[panels_.power()](
            {tile + v * work.vector_stride, x_row, count(v), item.together * terms, item.pieces, d,
             work.piece_stride},
            call.x + first_row(v) * x_row + (item.i * c + l) * d + offset);
      for (Index begin = item.panel, end = begin; begin < item.end; begin = end) {
        const Index k = panels[std::size_t(begin)].first;
        while (end < item.end && panels[std::size_t(end)].first - k < work.height) ++end;
        const SparseRows& last = panels[std::size_t(end - 1)];
        const Index height = last.first + last.rows - k;
        for (Index at = 0; at < item.together; ++at)
          for (Index j = 0; j < item.pieces; ++j)
            multiply_panels(call, item.i + at, item.j + j, l, begin, end,
                            {sums + j * sums_j + at * height * lanes,
                             tile + j * work.piece_stride + at * terms * lanes, nullptr, terms, 0,
                             item.count, lanes, lanes, work.vector_stride, lanes, sums_v, T(1),
                             false});
        for (Index v = 0; v < item.count; ++v)
          kernels_.from_pieces[panels_.power()](
              {sums + v * sums_v, y_row, count(v), item.together * height, item.pieces, d, sums_j},
              call.y + first_row(v) * y_row + (item.i * b + k) * d + offset, call.alpha,
              call.accumulate || l > 0);
      }
    });
  }

  // Vectors of neighbouring vectors of x.
  void run_columns(const SparseCall<T>& call, const Work& work, const Item& item, T* tile) const {
    const Index lanes = kernels_.lanes, step = shape_.d * call.inner;
    const Index first = item.first * lanes;
    const Index elements = std::min(item.count * lanes, call.inner - first);
    const Index whole = elements / lanes, rest = elements % lanes;
    const auto at = [&](Index block, Index index) {
      return (block * shape_.d + item.j) * call.inner + index * step + first;
    };
    each_block([&](Index l, Index terms) {
      const T* x = call.x + at((item.outer * shape_.a + item.i) * shape_.c, l);
      const Index k = panels_.panels()[std::size_t(item.panel)].first;
      T* y = call.y + at((item.outer * shape_.a + item.i) * shape_.b, k);
      SparsePanel<T> task{y,     x,    nullptr, terms, 0,     whole,
                          lanes, step, lanes,   step,  lanes, call.alpha,
                          call.accumulate || l > 0};
      if (copies(item) && whole > 0) {
        kernels_.copy_vectors(tile, x, terms, whole, lanes, work.vector_stride, step, lanes);
        task.x = tile;
        task.x_l = lanes;
        task.x_v = work.vector_stride;
      }
      if (whole > 0) multiply_panels(call, item.i, item.j, l, item.panel, item.end, task);
      if (rest == 0) return;
      for (Index t = 0; t < terms; ++t) {
        T* to = tile + t * lanes;
        std::copy_n(x + whole * lanes + t * step, rest, to);
        std::fill_n(to + rest, lanes - rest, T{});
      }
      task.x = tile;
      task.x_l = lanes;
      task.y = y + whole * lanes;
      task.vectors = 1;
      task.elements = rest;
      multiply_panels(call, item.i, item.j, l, item.panel, item.end, task);
    });
  }

  // Bytes of a tile, which stays in the L2 cache while all panels pass. Of columns 384 KiB were as
  // fast as 512 KiB, and faster than 128 KiB, as longer rows are copied (Zen 2, 2026-11), of rows
  // 256 KiB (Sapphire Rapids with other programs, 2026-11).
  static constexpr Index kColumnBytes = 384 << 10;
  static constexpr Index kRowBytes = 256 << 10;
  // Items that each thread gets at least, so that one that is interrupted does not keep all waiting.
  static constexpr Index kItemsPerThread = 4;
  static constexpr Index kMaxDirectPanels = 2;  // chosen by hand
  // Vectors that a row of x or y has in a tile, about, where it is moved to or from pieces: the last
  // one is only partly filled. Chosen by hand.
  static constexpr Index kMinVectors = 3;

  SparseShape shape_;
  const SparsePanels<T>& panels_;
  const SparseKernels<T>& kernels_;
};

}  // namespace batchkron
