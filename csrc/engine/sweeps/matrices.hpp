// The matrices of sweeps: which are distinct, laid out for the kernels, and gathered from the
// entries of one vector of values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "engine/aligned.hpp"
#include "engine/sweeps/mode_groups.hpp"
#include "engine/sweeps/shape.hpp"

namespace batchkron {

// The matrices of all parts of a plan, in the layouts of its kernels. Several threads may run
// products while another one sets new values: a run uses those that were set when it began.
template <class T>
class SweepMatrices {
 public:
  // Matrices in the layouts of the kernels for one vector (own) and for several vectors at once
  // (plain).
  struct Pool {
    AlignedVector<T> own, plain;  // plain is empty if the layouts are the same
  };
  // The matrices of a part, perhaps with others.
  struct Matrices {
    std::shared_ptr<Pool> pool;
    std::vector<std::int32_t> ids;  // [entry of the edge lists]; empty if they are the edges' own
  };
  using Values = std::vector<Matrices>;  // [part], counted over all steps

  // Both are the plan's, and outlive this.
  SweepMatrices(const SweepShape& shape, const std::vector<ModeGroup<T>>& groups)
      : shape_(shape), groups_(groups) {}

  // matrices[i] are those of part i, counted over all steps: (num_matrices, n, C), contiguous.
  void set(const std::vector<const T*>& matrices);

  // The matrices of part number `part` as entries of a vector of values: entry e of
  // (num_matrices, n, C) is scale * values[places[e]].
  struct Linked {
    std::size_t part;
    const std::int64_t* places;
    T scale;
  };
  // Prepares `gather` for some parts; places are below 2^31. Matrices that have the same places and
  // scale along a mode are stored once, as where parts have the same 1-D operator.
  void link(const std::vector<Linked>& parts);
  // Replaces the matrices of the linked parts, and keeps those of the others. A run that has begun
  // ends with the matrices that it began with; if there is none, these are overwritten.
  void gather(const T* values);

  // The matrices that a run uses. They are let go under the lock, so that a thread which finds that
  // no run uses them may write to them: all reads came before.
  struct Held {
    const SweepMatrices& all;
    std::shared_ptr<const Values> values;

    ~Held() {
      const std::lock_guard<std::mutex> lock(all.changes_);
      values.reset();
    }
  };

  // They are held from here on, for a run with `inner` vectors.
  Held hold(Index inner) const { return {*this, present(inner)}; }

 private:
  // Matrices that are gathered: element targets[k] of each in its layout is
  // scale * values[places[k]], all others are zero.
  struct LinkedPool {
    Index mode;
    T scale;
    std::vector<std::int32_t> entries, targets;  // [k]: entry of a matrix, its place in the layout
    std::vector<std::int32_t> places;            // [matrix][k]
    std::shared_ptr<Pool> made;
  };
  struct LinkedPart {
    std::size_t number, pool;
    std::vector<std::int32_t> ids;
  };

  Matrices laid_out(const SweepPart& part, const T* a) const {
    const ModeGroup<T>& group = group_of(groups_, part.mode);
    const Index n = group.n, C = group.C;
    std::vector<std::int32_t> places(std::size_t(part.num_matrices));
    const std::vector<Index> distinct = distinct_of(a, n * C, places);
    const auto copy = [&](const SweepKernel<T>& kernel) {
      AlignedVector<T> result(distinct.size() * std::size_t(kernel.matrix));
      T* target = result.data();
      for (const Index i : distinct) {
        kernel.lay_out(a + i * n * C, n, C, int(part.mode - group.first), target);
        target += kernel.matrix;
      }
      return result;
    };
    const SweepKernel<T> plain = plain_kernel<T>(group);
    Matrices result{std::make_shared<Pool>(), {}};
    result.pool->own = copy(group.kernel);
    if (group.kernel.lay_out != plain.lay_out) result.pool->plain = copy(plain);
    if (distinct.size() == places.size()) return result;
    result.ids = part.edges.ids();
    for (std::int32_t& id : result.ids) id = places[id];
    return result;
  }

  LinkedPool pool_of(Index mode, T scale) const {
    const ModeGroup<T>& group = group_of(groups_, mode);
    const Index size = group.n * group.C;
    LinkedPool pool{mode, scale, {}, {}, {}, nullptr};
    std::vector<T> unit(std::size_t(size), T{}), laid(std::size_t(group.kernel.matrix));
    for (Index e = 0; e < size; ++e) {
      unit[std::size_t(e)] = T(1);
      group.kernel.lay_out(unit.data(), group.n, group.C, int(mode - group.first), laid.data());
      unit[std::size_t(e)] = T{};
      for (Index i = 0; i < group.kernel.matrix; ++i) {
        if (laid[std::size_t(i)] == T{}) continue;
        pool.entries.push_back(std::int32_t(e));
        pool.targets.push_back(std::int32_t(i));
      }
    }
    return pool;
  }

  void fill(const LinkedPool& pool, const T* values) const {
    const ModeGroup<T>& group = group_of(groups_, pool.mode);
    const Index stride = group.kernel.matrix, each = Index(pool.targets.size());
    const Index count = Index(pool.places.size()) / std::max<Index>(each, 1);
    pool.made->own.resize(std::size_t(count * stride));
    // the numbers of entries of small matrices at compile time, for loops that are unrolled
    const auto copy = [&](auto size) {
      const std::int32_t* const targets = pool.targets.data();
      for (Index i = 0; i < count; ++i) {
        const std::int32_t* const places = pool.places.data() + i * each;
        T* const own = pool.made->own.data() + i * stride;
        const Index stop = size() > 0 ? size() : each;
        for (Index k = 0; k < stop; ++k) own[targets[k]] = pool.scale * values[places[k]];
      }
    };
    if (each == 4) copy(std::integral_constant<Index, 4>());
    else if (each == 9) copy(std::integral_constant<Index, 9>());
    else if (each == 16) copy(std::integral_constant<Index, 16>());
    else copy(std::integral_constant<Index, 0>());
    if (has_plain_ && group.kernel.lay_out != plain_kernel<T>(group).lay_out) fill_plain(pool);
  }

  // Writes the layout for several vectors at once, (c, k), from the other one.
  void fill_plain(const LinkedPool& pool) const {
    const ModeGroup<T>& group = group_of(groups_, pool.mode);
    const Index n = group.n, C = group.C, stride = group.kernel.matrix, each = Index(pool.targets.size());
    const Index count = Index(pool.made->own.size()) / stride;
    pool.made->plain.resize(std::size_t(count * n * C));
    for (Index i = 0; i < count; ++i)
      for (Index k = 0; k < each; ++k) {
        const Index e = pool.entries[std::size_t(k)];
        pool.made->plain[std::size_t(i * n * C + e % C * n + e / C)] =
            pool.made->own[std::size_t(i * stride + pool.targets[std::size_t(k)])];
      }
  }

  // The present matrices, for a run with `inner` vectors. Those that are gathered are laid out for
  // several vectors from the first run with several on.
  std::shared_ptr<const Values> present(Index inner) const {
    const std::lock_guard<std::mutex> lock(changes_);
    if (inner > 1 && !has_plain_) {
      has_plain_ = true;
      for (const LinkedPool& pool : pools_)
        if (pool.made &&
            group_of(groups_, pool.mode).kernel.lay_out !=
                plain_kernel<T>(group_of(groups_, pool.mode)).lay_out)
          fill_plain(pool);
    }
    return values_;
  }

  const SweepPart& part_of(std::size_t number) const {
    auto step = shape_.steps.begin();
    for (; number >= step->parts.size(); ++step) number -= step->parts.size();
    return step->parts[number];
  }

  // The numbers of the matrices, of `size` elements each, that do not equal an earlier one bit by
  // bit. places[i] becomes the place of matrix i's equal among them. Operators with constant
  // coefficients have few distinct matrices.
  static std::vector<Index> distinct_of(const T* a, Index size, std::vector<std::int32_t>& places) {
    const std::size_t bytes = std::size_t(size) * sizeof(T);
    std::size_t slots = 16;
    while (slots < 2 * places.size()) slots *= 2;
    // Open addressing: slots hold places among the distinct matrices, -1 if they are free. A map
    // that allocates memory for each matrix takes most of the time of `set_values`.
    std::vector<std::int32_t> table(slots, -1);
    std::vector<Index> distinct;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const T* own = a + Index(i) * size;
      std::size_t slot = hash_of(own, bytes) & (slots - 1);
      while (table[slot] >= 0 &&
             std::memcmp(a + distinct[std::size_t(table[slot])] * size, own, bytes) != 0)
        slot = (slot + 1) & (slots - 1);
      if (table[slot] < 0) {
        table[slot] = std::int32_t(distinct.size());
        distinct.push_back(Index(i));
      }
      places[i] = table[slot];
    }
    return distinct;
  }

  // A hash whose low bits depend on all bits of the data.
  static std::uint64_t hash_of(const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    std::uint64_t hash = bytes;
    while (bytes > 0) {
      const std::size_t taken = std::min<std::size_t>(bytes, 8);
      std::uint64_t word = 0;
      std::memcpy(&word, next, taken);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio
      hash ^= hash >> 32;
      next += taken;
      bytes -= taken;
    }
    return hash;
  }

  const SweepShape& shape_;
  const std::vector<ModeGroup<T>>& groups_;  // for one vector
  mutable std::mutex changes_;  // of values_, while it is read or replaced, and of who uses it
  std::shared_ptr<Values> values_;
  mutable bool has_plain_ = false;  // whether gathered matrices are laid out for several vectors
  std::vector<LinkedPool> pools_;
  std::vector<LinkedPart> linked_;
};

// Compiled once, in plan.cpp.
extern template class SweepMatrices<float>;
extern template class SweepMatrices<double>;
extern template class SweepMatrices<Complex<float>>;
extern template class SweepMatrices<Complex<double>>;

}  // namespace batchkron
