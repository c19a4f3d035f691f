// The engine's kernels for one instruction set. CMake compiles this file once for each, with
// BATCHKRON_ISA (a namespace), BATCHKRON_VECTOR_BYTES and the matching compiler flags.
#include "engine/kernels_of.hpp"
#include "isa/tables.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

#define BATCHKRON_QUOTE(text) #text
#define BATCHKRON_NAME(text) BATCHKRON_QUOTE(text)

extern const BatchKernelTable batch_table;       // batch_kernels.cpp
extern const SweepKernelTable sweep_table;       // sweep_kernels.cpp
extern const VectorSumTable vector_sum_table;    // vector_sums.cpp

extern const KernelTable table = {
    BATCHKRON_NAME(BATCHKRON_ISA),       mode_kernels_of<float>(),
    mode_kernels_of<double>(),           mode_kernels_of<Complex<float>>(),
    mode_kernels_of<Complex<double>>(),  &batch_table,
    &sweep_table,                        &vector_sum_table,
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
