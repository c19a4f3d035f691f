#include "engine/kron/plan.hpp"

namespace batchkron {

template class KronPlan<float>;
template class KronPlan<double>;
template class KronPlan<Complex<float>>;
template class KronPlan<Complex<double>>;

}  // namespace batchkron
