// Compiles the kernels of interpolation on a grid for one instruction set.
#include "simd/interpolation/windows.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace {

template <class T>
constexpr InterpolationKernels<T> kernels_of() {
  return {{windows::scatter<T, 1>, windows::scatter<T, 2>, windows::scatter<T, 4>,
           windows::scatter<T, 8>, windows::scatter<T, 16>},
          {windows::gather<T, 1>, windows::gather<T, 2>, windows::gather<T, 4>,
           windows::gather<T, 8>, windows::gather<T, 16>}};
}

}  // namespace

extern const InterpolationTable interpolation_table = {kernels_of<float>(), kernels_of<double>()};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
