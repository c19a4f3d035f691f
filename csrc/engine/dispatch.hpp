// The kernels of the instruction set in use. It is chosen in the first call and kept until the
// process ends, so that results keep their bits.
#pragma once

#include <string>

#include "simd/kernel_table.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {

// The table of the best instruction set that this machine has, or of the one that the environment
// variable BATCHKRON_ISA names (baseline, avx2, avx512). Throws std::runtime_error if the variable
// names none that this machine and this build have.
const KernelTable& kernels();

// Whether the environment variable BATCHKRON_WITHOUT names a part that plans shall do without, in a
// list such as lanes,tails: for measurements of what it is worth (benchmarks/cpu/ablate.py).
bool without(const std::string& part);

// The best instruction set of this machine if this build has no kernels for it, else empty.
std::string missing_instruction_set();

template <class T>
const ModeKernels<T>& mode_kernels();
template <>
inline const ModeKernels<float>& mode_kernels() { return kernels().f32; }
template <>
inline const ModeKernels<double>& mode_kernels() { return kernels().f64; }
template <>
inline const ModeKernels<Complex<float>>& mode_kernels() { return kernels().c64; }
template <>
inline const ModeKernels<Complex<double>>& mode_kernels() { return kernels().c128; }

// Null for complex numbers: batch lists of these use the single-mode kernels.
template <class T>
const BatchKernels<T>* batch_kernels() { return nullptr; }
template <>
inline const BatchKernels<float>* batch_kernels() { return &kernels().batch->f32; }
template <>
inline const BatchKernels<double>* batch_kernels() { return &kernels().batch->f64; }

template <class T>
const SegmentKernels<T>& segment_kernels();
template <>
inline const SegmentKernels<float>& segment_kernels() { return kernels().batch->segments.f32; }
template <>
inline const SegmentKernels<double>& segment_kernels() { return kernels().batch->segments.f64; }
template <>
inline const SegmentKernels<Complex<float>>& segment_kernels() {
  return kernels().batch->segments.c64;
}
template <>
inline const SegmentKernels<Complex<double>>& segment_kernels() {
  return kernels().batch->segments.c128;
}

template <class T>
FindSweepKernel<T> sweep_kernels();
template <>
inline FindSweepKernel<float> sweep_kernels() { return kernels().sweeps->f32; }
template <>
inline FindSweepKernel<double> sweep_kernels() { return kernels().sweeps->f64; }
template <>
inline FindSweepKernel<Complex<float>> sweep_kernels() { return kernels().sweeps->c64; }
template <>
inline FindSweepKernel<Complex<double>> sweep_kernels() { return kernels().sweeps->c128; }

template <class T>
const SparseKernels<T>& sparse_kernels();
template <>
inline const SparseKernels<float>& sparse_kernels() { return kernels().sparse->f32; }
template <>
inline const SparseKernels<double>& sparse_kernels() { return kernels().sparse->f64; }
template <>
inline const SparseKernels<Complex<float>>& sparse_kernels() { return kernels().sparse->c64; }
template <>
inline const SparseKernels<Complex<double>>& sparse_kernels() { return kernels().sparse->c128; }

template <class T>
const InterpolationKernels<T>& interpolation_kernels();
template <>
inline const InterpolationKernels<float>& interpolation_kernels() {
  return kernels().interpolation->f32;
}
template <>
inline const InterpolationKernels<double>& interpolation_kernels() {
  return kernels().interpolation->f64;
}

template <class T>
auto vector_sum_kernel();
template <>
inline auto vector_sum_kernel<float>() { return kernels().vector_sums->f32; }
template <>
inline auto vector_sum_kernel<double>() { return kernels().vector_sums->f64; }

// The passes over vectors that Krylov methods are made of.
const KrylovTable& krylov_passes();

}  // namespace batchkron
