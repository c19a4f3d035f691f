#include "engine/kron_sparse/once.hpp"

#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

template <class T>
void multiply_once(const KronSparsePlan<T>& plan, const T* values, const T* x, T* y, Index outer,
                   Index inner) {
  static ThreadGains gains;
  const ThreadTeam team(plan.multiply_adds(outer, inner), gains);
  const auto packing = plan.packing(inner);
  thread_local Workspace workspace;  // kept, as new memory would take longer than to pack
  T* packed = static_cast<T*>(workspace.reserve(bytes_of<T>(plan.packed_elements(packing), 1)));
  plan.pack(packing, values, packed, team);
  plan.run({packed, x, y, outer, inner, T(1), false}, team);
}

template void multiply_once(const KronSparsePlan<float>&, const float*, const float*,
                            float*, Index, Index);
template void multiply_once(const KronSparsePlan<double>&, const double*, const double*,
                            double*, Index, Index);
template void multiply_once(const KronSparsePlan<Complex<float>>&, const Complex<float>*, const Complex<float>*,
                            Complex<float>*, Index, Index);
template void multiply_once(const KronSparsePlan<Complex<double>>&, const Complex<double>*, const Complex<double>*,
                            Complex<double>*, Index, Index);

}  // namespace batchkron
