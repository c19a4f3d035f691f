// a * b + c of vectors, as one fused instruction where the processor has it. Left to itself the
// compiler chooses which products of a sum it fuses, and the choice, and so the last bit of a
// result, depends on the code around.
#pragma once

#include "simd/common/compiler.hpp"
#include "simd/common/scalar.hpp"

#if defined(BATCHKRON_FUSES) && defined(__ARM_FEATURE_FMA)
#include <arm_neon.h>
#elif defined(BATCHKRON_FUSES)
#include <immintrin.h>
#endif

namespace batchkron {
namespace BATCHKRON_ISA {

BATCHKRON_INLINE float fused_vector(float a, float b, float c) { return fused_scalar(a, b, c); }
BATCHKRON_INLINE double fused_vector(double a, double b, double c) { return fused_scalar(a, b, c); }

#if defined(BATCHKRON_FUSES)
#define BATCHKRON_FUSED(Real, bytes, Native, instruction)                    \
  typedef Real Real##_vector##bytes __attribute__((vector_size(bytes)));     \
  BATCHKRON_INLINE Real##_vector##bytes fused_vector(Real##_vector##bytes a, \
                                                     Real##_vector##bytes b, \
                                                     Real##_vector##bytes c) { \
    return Real##_vector##bytes(instruction(Native(a), Native(b), Native(c))); \
  }
#if defined(__ARM_FEATURE_FMA)
BATCHKRON_INLINE float32x4_t fused_floats(float32x4_t a, float32x4_t b, float32x4_t c) {
  return vfmaq_f32(c, a, b);
}
BATCHKRON_INLINE float64x2_t fused_doubles(float64x2_t a, float64x2_t b, float64x2_t c) {
  return vfmaq_f64(c, a, b);
}
BATCHKRON_FUSED(float, 16, float32x4_t, fused_floats)
BATCHKRON_FUSED(double, 16, float64x2_t, fused_doubles)
#else
BATCHKRON_FUSED(float, 16, __m128, _mm_fmadd_ps)
BATCHKRON_FUSED(double, 16, __m128d, _mm_fmadd_pd)
BATCHKRON_FUSED(float, 32, __m256, _mm256_fmadd_ps)
BATCHKRON_FUSED(double, 32, __m256d, _mm256_fmadd_pd)
#if defined(__AVX512F__)
BATCHKRON_FUSED(float, 64, __m512, _mm512_fmadd_ps)
BATCHKRON_FUSED(double, 64, __m512d, _mm512_fmadd_pd)
#endif
#endif
#undef BATCHKRON_FUSED

// Two floats: the vector of a single complex number, for which there is no instruction.
typedef float float_vector8 __attribute__((vector_size(8)));
BATCHKRON_INLINE float_vector8 fused_vector(float_vector8 a, float_vector8 b, float_vector8 c) {
  return float_vector8{fused_scalar(a[0], b[0], c[0]), fused_scalar(a[1], b[1], c[1])};
}
#else
template <class V>
BATCHKRON_INLINE V fused_vector(V a, V b, V c) {
  return a * b + c;
}
#endif

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
