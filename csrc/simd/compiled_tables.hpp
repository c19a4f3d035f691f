// The kernel tables of this build, one for each instruction set that it was compiled for.
#pragma once

#include "simd/kernel_table.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {
namespace baseline {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
#ifdef BATCHKRON_X86
namespace avx2 {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
namespace avx512 {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
#endif
}  // namespace batchkron
