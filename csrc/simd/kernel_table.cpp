// Compiles the kernels of Kronecker products for one instruction set, and puts the kernels of all
// operations into its table.
#include "simd/kernel_table.hpp"
#include "simd/kron/kernels.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

#define BATCHKRON_QUOTE(text) #text
#define BATCHKRON_NAME(text) BATCHKRON_QUOTE(text)

extern const BatchKernelTable batch_table;       // simd/batch/kernels.cpp
extern const SweepKernelTable sweep_table;       // simd/sweeps/kernels.cpp
extern const VectorSumTable vector_sum_table;    // simd/vector_sums/kernels.cpp
extern const SparseKernelTable sparse_table;     // simd/kron_sparse/kernels.cpp
extern const SmallProductTable small_product_table;  // simd/small_products/kernels.cpp
extern const InterpolationTable interpolation_table;  // simd/interpolation/kernels.cpp

extern const KernelTable table = {
    BATCHKRON_NAME(BATCHKRON_ISA),       mode_kernels_of<float>(),
    mode_kernels_of<double>(),           mode_kernels_of<Complex<float>>(),
    mode_kernels_of<Complex<double>>(),  &batch_table,
    &sweep_table,                        &vector_sum_table,
    &sparse_table,                       &small_product_table,
    &interpolation_table,
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
