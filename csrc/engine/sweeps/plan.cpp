#include "engine/sweeps/plan.hpp"

namespace batchkron {

template class SweepMatrices<float>;
template class SweepMatrices<double>;
template class SweepMatrices<Complex<float>>;
template class SweepMatrices<Complex<double>>;
template class SweepPlan<float>;
template class SweepPlan<double>;
template class SweepPlan<Complex<float>>;
template class SweepPlan<Complex<double>>;

}  // namespace batchkron
