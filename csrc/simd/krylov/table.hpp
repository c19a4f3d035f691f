// The seam between the passes of Krylov methods, compiled once per instruction set, and what runs
// them on the CPU.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// What all arguments of passes begin with (KrylovArguments of krylov/common.hpp).
struct KrylovHead {
  Index n, systems;
  int* progress;
};

// One pass for one dtype. `sums` is how many; `part` overwrites them with the sums over the
// elements [begin, end) of one system; `after` takes those of the whole system.
struct KrylovPass {
  const char* name;
  bool maxima;
  bool (*is_for)(int progress);
  Index (*sums)(const void* arguments);
  void (*part)(const void* arguments, Index system, Index begin, Index end, double* sums);
  void (*after)(const void* arguments, Index system, const double* sums);
};

struct KrylovPasses {
  const KrylovPass* passes;
  int count;
};

// In the order float, double, Complex<float>, Complex<double>.
struct KrylovTable {
  KrylovPasses of_dtype[4];
};

}  // namespace batchkron
