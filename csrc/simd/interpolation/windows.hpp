// Windows of a grid, row by row: a row is the four neighbouring cells of the last mode, with some
// vectors in each.
#pragma once

#include "simd/common/vectors.hpp"
#include "simd/interpolation/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace windows {

// Where element i of a row is: cells follow each other if `dense`, else they lie `step` apart.
template <int count, bool dense>
BATCHKRON_INLINE Index place_in_row(int i, Index step) {
  if constexpr (dense) return i;
  return Index(i / count) * step + i % count;
}

// One row of a window for `count` vectors. Its element j * count + r is cell j, vector r. A row whose
// cells lie apart is read and written by vectors that are no longer than a cell.
template <class T, int count, bool dense>
struct RowAccess {
  static constexpr int longest = dense ? kWeights * count : count;
  static constexpr int lanes = longest < widest<T> ? longest : widest<T>;
  static constexpr int parts = kWeights * count / lanes;
  using V = Pack<T, lanes>;

  // cells += c * z
  static BATCHKRON_INLINE void add(T* cells, Index step, T c, const T* z) {
    BATCHKRON_UNROLL
    for (int i = 0; i < parts; ++i) {
      T* to = cells + place_in_row<count, dense>(i * lanes, step);
      store<lanes>(to, fused_vector(load<lanes>(z + i * lanes), splat<V>(c), load<lanes>(to)));
    }
  }

  // sum += c * sum over q < count of table[q] * (the row at cells + rows[q]); count is 1 or a
  // multiple of 4. Narrow rows have several sums, as each waits for its own multiply-adds.
  static BATCHKRON_INLINE void sum_rows(V* sum, const T* cells, Index step, T c, const T* table,
                                        const Index* rows, Index count_of_rows) {
    constexpr int chains = parts < 4 ? 4 : 1;
    V partial[chains][parts]{};
    const auto add_row = [&](V* to, Index q) {
      const T* row = cells + rows[q] * step;
      const V factor = splat<V>(table[q]);
      BATCHKRON_UNROLL
      for (int i = 0; i < parts; ++i)
        to[i] = fused_vector(load<lanes>(row + place_in_row<count, dense>(i * lanes, step)), factor,
                             to[i]);
    };
    if (count_of_rows % chains == 0) {
      for (Index q = 0; q < count_of_rows; q += chains) {
        BATCHKRON_UNROLL
        for (int chain = 0; chain < chains; ++chain) add_row(partial[chain], q + chain);
      }
    } else {
      for (Index q = 0; q < count_of_rows; ++q) add_row(partial[0], q);
    }
    BATCHKRON_UNROLL
    for (int i = 0; i < parts; ++i) {
      V whole = partial[0][i];
      if constexpr (chains == 4)
        whole = (whole + partial[1][i]) + (partial[2][i] + partial[3][i]);
      sum[i] = fused_vector(whole, splat<V>(c), sum[i]);
    }
  }
};

// table[q] = `start` times the weights of the modes [begin, end), multiplied from left to right, the
// first mode slowest; returns how many.
template <class T>
BATCHKRON_INLINE Index fill_table(const T* weights, Index begin, Index end, T start, T* table) {
  constexpr int lanes = kWeights < widest<T> ? kWeights : widest<T>;
  constexpr int parts = kWeights / lanes;
  Index count = 1;
  table[0] = start;
  for (Index k = begin; k < end; ++k, count *= kWeights) {
    Pack<T, lanes> factors[parts];
    for (int i = 0; i < parts; ++i) factors[i] = load<lanes>(weights + k * kWeights + i * lanes);
    for (Index q = count - 1; q >= 0; --q) {
      const auto product = splat<Pack<T, lanes>>(table[q]);
      for (int i = 0; i < parts; ++i)
        store<lanes>(table + q * kWeights + i * lanes, product * factors[i]);
    }
  }
  return count;
}

// Calls visit(c, table, cell, count) for the rows that are visited of a point's window, at the cells
// cell + list.rows[q] for q < count: the product of a row's weights but the last mode's is
// c * table[q].
template <class T, class Visit>
BATCHKRON_INLINE void for_rows(const WindowList<T>& list, Index point, Visit visit) {
  const T* weights = list.weights + point * list.modes * kWeights;
  const Index last = list.modes - 1, walked_end = last - list.tabled;
  T start = 1;
  Index corner = list.corners[point];
  for (Index k = 0; k < list.fixed; ++k) {
    start *= weights[k * kWeights + list.digits[k]];
    corner += list.digits[k] * list.strides[k];
  }
  T table[256];  // 4^kMaxTableModes
  if (list.fixed == walked_end) {
    const Index count = fill_table(weights, walked_end, last, start, table);
    visit(T(1), table, corner, count);
    return;
  }
  const Index count = fill_table(weights, walked_end, last, T(1), table);
  Index digits[kMaxGridModes] = {};
  for (;;) {  // over the modes that are neither fixed nor in the table, the first one slowest
    T factor = start;
    Index cell = corner;
    for (Index k = list.fixed; k < walked_end; ++k) {
      factor *= weights[k * kWeights + digits[k]];
      cell += digits[k] * list.strides[k];
    }
    visit(factor, table, cell, count);
    Index k = walked_end - 1;
    while (k >= list.fixed && ++digits[k] == kWeights) digits[k--] = 0;
    if (k < list.fixed) return;
  }
}

template <class T, int count, bool dense>
BATCHKRON_INLINE void scatter_rows(const WindowScatter<T>& task) {
  const WindowList<T>& list = task.list;
  for (Index p = list.first; p < list.last; ++p) {
    const T* last = list.weights + ((p + 1) * list.modes - 1) * kWeights;
    const T* value = task.points + list.places[p] * task.point_step;
    T z[kWeights * count];
    for (int r = 0; r < count; ++r) {
      const T v = value[task.vectors[r]];
      for (int j = 0; j < kWeights; ++j) z[j * count + r] = last[j] * v;
    }
    for_rows(list, p, [&](T c, const T* table, Index cell, Index rows) {
      T* cells = task.grid + cell * task.cell_step;
      for (Index q = 0; q < rows; ++q)
        RowAccess<T, count, dense>::add(cells + list.rows[q] * task.cell_step, task.cell_step,
                                        c * table[q], z);
    });
  }
}

template <class T, int count, bool dense>
BATCHKRON_INLINE void gather_rows(const WindowGather<T>& task) {
  using Access = RowAccess<T, count, dense>;
  const WindowList<T>& list = task.list;
  for (Index p = list.first; p < list.last; ++p) {
    typename Access::V total[Access::parts]{};
    for_rows(list, p, [&](T c, const T* table, Index cell, Index rows) {
      Access::sum_rows(total, task.grid + cell * task.cell_step, task.cell_step, c, table,
                       list.rows, rows);
    });
    T sums[kWeights * count];
    for (int i = 0; i < Access::parts; ++i) store<Access::lanes>(sums + i * Access::lanes, total[i]);
    const T* last = list.weights + ((p + 1) * list.modes - 1) * kWeights;
    T* value = task.points + list.places[p] * task.point_step;
    for (int r = 0; r < count; ++r) {
      T sum = last[0] * sums[r];
      for (int j = 1; j < kWeights; ++j) sum = fused_scalar(last[j], sums[j * count + r], sum);
      T& target = value[task.vectors[r]];
      target = task.accumulate ? fused_scalar(task.alpha, sum, target) : task.alpha * sum;
    }
  }
}

template <class T, int count>
void scatter(const WindowScatter<T>& task) {
  if (task.cell_step == count)
    scatter_rows<T, count, true>(task);
  else
    scatter_rows<T, count, false>(task);
}

template <class T, int count>
void gather(const WindowGather<T>& task) {
  if (task.cell_step == count)
    gather_rows<T, count, true>(task);
  else
    gather_rows<T, count, false>(task);
}

}  // namespace windows
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
