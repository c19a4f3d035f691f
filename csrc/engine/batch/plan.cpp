#include "engine/batch/plan.hpp"

namespace batchkron {

template class BatchPlan<float>;
template class BatchPlan<double>;
template class BatchPlan<Complex<float>>;
template class BatchPlan<Complex<double>>;

}  // namespace batchkron
