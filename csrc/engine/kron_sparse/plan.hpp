// A Kronecker-sparse matrix for products with any number of vectors, in any layout.
#pragma once

#include <algorithm>

#include "engine/aligned.hpp"
#include "engine/kron_sparse/multiply.hpp"
#include "engine/kron_sparse/strips.hpp"

namespace batchkron {

// Everything about a pattern that does not depend on values. Several threads may use it at once.
// Results have the same bits for any number of threads.
template <class T>
class KronSparsePlan {
 public:
  explicit KronSparsePlan(const SparseShape& shape);

  Index rows() const { return rows_; }
  Index columns() const { return columns_; }
  double multiply_adds(Index outer, Index inner) const {
    return double(outer) * double(inner) * double(rows_) * double(shape_.c);
  }

  // How a matrix is packed: in panels for vectors that lie behind or before the modes, or in strips.
  enum Packing { columns_packing, pieces_packing, strips_packing };
  static constexpr int kPackings = 3;

  // What a call with `inner` vectors behind needs.
  Packing packing(Index inner) const {
    if (inner > 1 && !gathers(inner)) return columns_packing;
    if (shape_.d == 1 && 2 * shape_.b >= sparse_kernels<T>().lanes) return strips_packing;
    return pieces_packing;
  }
  Index packed_elements(Packing packing) const {
    return packing == strips_packing ? strips_.elements() : panels(packing).elements();
  }
  void pack(Packing packing, const T* values, T* packed, const ThreadTeam& team) const;

  // `call.packed` is packed by packing(inner).
  void run(const SparseCall<T>& call, const ThreadTeam& team) const;

 private:
  // Bytes of the vectors that are gathered at a time. Chosen by hand.
  static constexpr Index kGatheredBytes = 4 << 20;

  const SparsePanels<T>& panels(Packing packing) const {
    return packing == pieces_packing ? by_pieces_ : by_columns_;
  }

  void run_packed(const SparseCall<T>& call, Packing packing, const ThreadTeam& team) const {
    if (packing == strips_packing) return strips_.run(call, team);
    SparseMultiply<T>(shape_, panels(packing)).run(call, team);
  }

  // The largest power of two that divides d, up to the lanes.
  static int piece_power(const SparseShape& shape) {
    int power = 0;
    while (Index(2) << power <= sparse_kernels<T>().lanes && shape.d > 0 &&
           shape.d % (Index(2) << power) == 0)
      ++power;
    return power;
  }

  // Whether vectors behind the modes are too few for the lanes.
  static bool gathers(Index inner) { return inner > 1 && inner < sparse_kernels<T>().lanes; }

  // The vectors behind become vectors before, some at a time.
  void run_gathered(const SparseCall<T>& call, const ThreadTeam& team) const {
    const Index inner = call.inner, size = (rows_ + columns_) * inner;
    const Index least = (4 * sparse_kernels<T>().lanes + inner - 1) / inner;  // to fill vectors
    const Index most = std::max(least, kGatheredBytes / Index(sizeof(T)) / size);
    const Index chunk = std::min(most, call.outer);
    thread_local Workspace workspace;
    T* x = static_cast<T*>(workspace.reserve(bytes_of<T>(size, chunk)));
    T* y = x + chunk * columns_ * inner;
    for (Index first = 0; first < call.outer; first += chunk) {
      const Index count = std::min(chunk, call.outer - first);
      const T* from = call.x + first * columns_ * inner;
      T* to = call.y + first * rows_ * inner;
      team.run(count, [&](Index begin, Index end, int) {
        for (Index o = begin; o < end; ++o)
          for (Index r = 0; r < inner; ++r)
            for (Index s = 0; s < columns_; ++s)
              x[(o * inner + r) * columns_ + s] = from[(o * columns_ + s) * inner + r];
      });
      run_packed({call.packed, x, y, count * inner, 1, call.alpha, false}, packing(inner), team);
      team.run(count, [&](Index begin, Index end, int) {
        for (Index o = begin; o < end; ++o)
          for (Index s = 0; s < rows_; ++s)
            for (Index r = 0; r < inner; ++r) {
              T& target = to[(o * rows_ + s) * inner + r];
              const T sum = y[(o * inner + r) * rows_ + s];
              target = call.accumulate ? multiply_add(target, sum, T(1)) : sum;
            }
      });
    }
  }

  SparseShape shape_;
  Index rows_, columns_;
  SparsePanels<T> by_columns_, by_pieces_;
  SparseStrips<T> strips_;
};

// A plan with its values packed for the calls that have been made. Several threads may run it at
// once.
template <class T>
class KronSparse {
 public:
  explicit KronSparse(const SparseShape& shape) : plan_(shape) {}

  const KronSparsePlan<T>& plan() const { return plan_; }

  // After other values have been set.
  void forget() {
    for (Packed& packed : packed_) packed.is_current = false;
  }

  // The values (a, b, c, d) as a call needs them, packed in the first such call. One thread at a time.
  const T* pack(const T* values, Index inner);

  void run(const SparseCall<T>& call) const;

 private:
  struct Packed {
    AlignedVector<T> values;
    bool is_current = false;
  };

  KronSparsePlan<T> plan_;
  Packed packed_[KronSparsePlan<T>::kPackings];
  mutable ThreadGains gains_;
};

// Compiled once, in plan.cpp.
extern template class KronSparsePlan<float>;
extern template class KronSparsePlan<double>;
extern template class KronSparsePlan<Complex<float>>;
extern template class KronSparsePlan<Complex<double>>;
extern template class KronSparse<float>;
extern template class KronSparse<double>;
extern template class KronSparse<Complex<float>>;
extern template class KronSparse<Complex<double>>;

}  // namespace batchkron
