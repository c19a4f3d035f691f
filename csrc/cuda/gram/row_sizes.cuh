// For cuda/gram/rows.cuh: modes and groups of them, and the sizes of buffers, matrices, tiles and sums,
// all known when a kernel is compiled.
#pragma once

namespace batchkron {

constexpr int row_tile = 4;  // rows, and columns, of the largest tile of sums

// The elements of the words of 16 bytes that so many elements need.
template <class T>
constexpr int whole_words(int count) {
  constexpr int word = 16 / int(sizeof(T));
  return (count + word - 1) / word * word;
}

// Of a row whose parts, modes or groups of them, are multiplied from the first one on. Before part k
// is, it has elements for l < outer(k), i < rows_of(k) and r < inner(k).
template <class... Part>
struct RowExtents {
  static constexpr int parts = int(sizeof...(Part));
  static constexpr int rows_of(int k) {
    constexpr int each[] = {Part::rows...};
    return each[k];
  }
  static constexpr int columns_of(int k) {
    constexpr int each[] = {Part::columns...};
    return each[k];
  }
  static constexpr int outer(int k) {
    int size = 1;
    for (int j = 0; j < k; ++j) size *= columns_of(j);
    return size;
  }
  static constexpr int inner(int k) {
    int size = 1;
    for (int j = k + 1; j < parts; ++j) size *= rows_of(j);
    return size;
  }
  static constexpr int elements(int k) {
    return k == parts ? outer(k) : outer(k) * rows_of(k) * inner(k);
  }
};

template <int rows_, int columns_>
struct RowMode {
  static constexpr int rows = rows_, columns = columns_;
};

// Neighbouring modes. A thread has whole fibres of them, and all sums of each unless those are cut
// into tiles. Of the buffer before the group, what belongs to each l is a line, and begins so many
// elements after the end of the last one: neighbouring threads then read different banks of shared
// memory.
template <int padding_, class... Mode>
struct RowGroup : RowExtents<Mode...> {
  using Extents = RowExtents<Mode...>;
  using Extents::columns_of, Extents::rows_of;
  static constexpr int padding = padding_, modes = Extents::parts;
  static constexpr int rows = (Mode::rows * ...), columns = (Mode::columns * ...);

  // Where matrix j begins: A_j with its rows, then A_jᵀ, each row of which is whole words.
  template <class T>
  static constexpr int matrix(int j, bool transposed) {
    int begin = 0;
    for (int i = 0; i < j; ++i)
      begin += rows_of(i) * whole_words<T>(columns_of(i)) +
               columns_of(i) * whole_words<T>(rows_of(i));
    return begin + (transposed ? rows_of(j) * whole_words<T>(columns_of(j)) : 0);
  }

  // Tiles of sums: their sizes differ as little as possible.
  static constexpr int tiles(int size) { return (size + row_tile - 1) / row_tile; }
  static constexpr int tile(int size) { return (size + tiles(size) - 1) / tiles(size); }
  static constexpr int tile_size = tile(rows) * tile(columns);
  static constexpr int tile_count = tiles(rows) * tiles(columns);
  static constexpr bool cut = modes == 1 && tile_count > 1;

  // Results of the modes before j that are wanted, and sums that a thread has of them.
  static constexpr int results(int j, unsigned wanted) {
    int count = 0;
    for (int i = 0; i < j; ++i) count += wanted >> i & 1 ? rows_of(i) * columns_of(i) : 0;
    return count;
  }
  static constexpr int sums(int j, unsigned wanted) {
    return !cut ? results(j, wanted) : j && wanted & 1 ? tile_size : 0;
  }
};

template <int k, class... Group>
struct GroupAt;
template <int k, class First, class... Rest>
struct GroupAt<k, First, Rest...> {
  using Type = typename GroupAt<k - 1, Rest...>::Type;
};
template <class First, class... Rest>
struct GroupAt<0, First, Rest...> {
  using Type = First;
};

// Sizes of whole rows, known from their groups.
template <class T, unsigned wanted, int last_padding, class... Group>
struct RowSizes : RowExtents<Group...> {
  using Extents = RowExtents<Group...>;
  using Extents::columns_of, Extents::elements, Extents::inner, Extents::rows_of;
  static constexpr int groups = Extents::parts, modes = (Group::modes + ...);
  static constexpr int first_mode(int k) {
    constexpr int each[] = {Group::modes...};
    int count = 0;
    for (int j = 0; j < k; ++j) count += each[j];
    return count;
  }
  static constexpr unsigned wanted_of(int k) {
    constexpr int each[] = {Group::modes..., 0};
    return wanted >> first_mode(k) & ((1u << each[k]) - 1);
  }

  // Lines of buffer k: what belongs to an l of group k, or of the last group behind which it is.
  static constexpr int line(int k) {
    return k == groups ? columns_of(groups - 1) : rows_of(k) * inner(k);
  }
  static constexpr int stride(int k) {
    constexpr int each[] = {Group::padding..., last_padding};
    return line(k) + each[k];
  }
  // Where buffer k begins, if a chunk has one row; the matrices, the sums and the results of group k.
  static constexpr int buffer(int k) {
    int begin = 0;
    for (int j = 0; j < k; ++j) begin += whole_words<T>(elements(j) / line(j) * stride(j));
    return begin;
  }
  static constexpr int matrices(int k) {
    constexpr int each[] = {Group::template matrix<T>(Group::modes, false)...};
    int begin = 0;
    for (int j = 0; j < k; ++j) begin += each[j];
    return begin;
  }
  static constexpr int sums(int k) {
    int number = 0, count = 0;
    ((count += number < k ? Group::sums(Group::modes, wanted_of(number)) : 0, ++number), ...);
    return count;
  }
  static constexpr int results(int k) {
    int number = 0, count = 0;
    ((count += number < k ? Group::results(Group::modes, wanted_of(number)) : 0, ++number), ...);
    return count;
  }
};

}  // namespace batchkron
