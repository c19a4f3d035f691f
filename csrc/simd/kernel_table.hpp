// All kernels of one instruction set that plans call, except the passes of Krylov methods
// (simd/krylov/table.hpp).
#pragma once

#include "simd/batch/table.hpp"
#include "simd/interpolation/table.hpp"
#include "simd/kron/table.hpp"
#include "simd/kron_sparse/table.hpp"
#include "simd/small_products/table.hpp"
#include "simd/sweeps/table.hpp"
#include "simd/vector_sums/table.hpp"

namespace batchkron {

struct KernelTable {
  const char* name;
  ModeKernels<float> f32;
  ModeKernels<double> f64;
  ModeKernels<Complex<float>> c64;
  ModeKernels<Complex<double>> c128;
  const BatchKernelTable* batch;
  const SweepKernelTable* sweeps;
  const VectorSumTable* vector_sums;
  const SparseKernelTable* sparse;
  const SmallProductTable* small_products;
  const InterpolationTable* interpolation;
};

}  // namespace batchkron
