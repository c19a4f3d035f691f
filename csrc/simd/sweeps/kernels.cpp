// The kernels of sweeps for one instruction set.
#include "simd/sweeps/kernels.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

extern const SweepKernelTable sweep_table = {
    sweeps::find<float>,
    sweeps::find<double>,
    sweeps::find<Complex<float>>,
    sweeps::find<Complex<double>>,
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
