// The kernel tables, one for each instruction set; a build has some of them.
#pragma once

#include "simd/kernel_table.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {
namespace baseline {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
namespace avx2 {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
namespace avx512 {
extern const KernelTable table;
extern const KrylovTable krylov_table;
}
}  // namespace batchkron
