#include "engine/kron_sparse/plan.hpp"

namespace batchkron {

template <class T>
KronSparsePlan<T>::KronSparsePlan(const SparseShape& shape)
    : shape_(shape),
      rows_(shape.rows()),
      columns_(shape.columns()),
      by_columns_(shape, 0, false, sparse_kernels<T>()),
      by_pieces_(shape, piece_power(shape), true, sparse_kernels<T>()),
      strips_(shape, sparse_kernels<T>()) {}

template <class T>
void KronSparsePlan<T>::pack(Packing packing, const T* values, T* packed,
                             const ThreadTeam& team) const {
  if (packing == strips_packing) return strips_.pack(values, packed, team);
  panels(packing).pack(values, packed, team);
}

template <class T>
void KronSparsePlan<T>::run(const SparseCall<T>& call, const ThreadTeam& team) const {
  if (call.outer == 0 || call.inner == 0 || rows_ == 0) return;
  if (columns_ == 0) {
    if (!call.accumulate) std::fill_n(call.y, call.outer * rows_ * call.inner, T{});
    return;
  }
  if (gathers(call.inner))
    run_gathered(call, team);
  else
    run_packed(call, packing(call.inner), team);
}

template class KronSparsePlan<float>;
template class KronSparsePlan<double>;
template class KronSparsePlan<Complex<float>>;
template class KronSparsePlan<Complex<double>>;

template <class T>
const T* KronSparse<T>::pack(const T* values, Index inner) {
  const auto packing = plan_.packing(inner);
  Packed& packed = packed_[packing];
  if (!packed.is_current) {
    packed.values.resize(std::size_t(plan_.packed_elements(packing)));
    plan_.pack(packing, values, packed.values.data(), ThreadTeam());
    packed.is_current = true;
  }
  return packed.values.data();
}

template <class T>
void KronSparse<T>::run(const SparseCall<T>& call) const {
  const ThreadTeam team(plan_.multiply_adds(call.outer, call.inner), gains_);
  plan_.run(call, team);
}

template class KronSparse<float>;
template class KronSparse<double>;
template class KronSparse<Complex<float>>;
template class KronSparse<Complex<double>>;

}  // namespace batchkron
