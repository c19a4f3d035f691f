// A few elements of memory, repeated over a vector. On x86 that is one load, of which compilers
// make a load and shuffles, hence the intrinsics. Some have masks of ones, as GCC 12 warns of those
// without masks.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "simd/common/lanes.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace lanes {

#if defined(__AVX2__)
typedef long long EightBytes __attribute__((may_alias, aligned(4)));

// A vector of `total` bytes that repeats the `bytes` bytes at p.
template <int bytes, int total>
inline auto repeat_bytes(const void* p) {
  if constexpr (bytes == 8) {
    const long long value = *static_cast<const EightBytes*>(p);
#if defined(__AVX512F__)
    if constexpr (total == 64) return _mm512_set1_epi64(value);
#endif
    if constexpr (total == 32) return _mm256_set1_epi64x(value);
    if constexpr (total == 16) return _mm_set1_epi64x(value);
  } else if constexpr (bytes == 16) {
    const __m128 value = _mm_loadu_ps(static_cast<const float*>(p));
#if defined(__AVX512F__)
    if constexpr (total == 64) return _mm512_maskz_broadcast_f32x4(__mmask16(-1), value);
#endif
    if constexpr (total == 32) return _mm256_set_m128(value, value);
  } else {
#if defined(__AVX512F__)
    return _mm512_maskz_broadcast_f64x4(__mmask8(-1),
                                        _mm256_loadu_pd(static_cast<const double*>(p)));
#endif
  }
}
#endif

// Returns (p[0], ..., p[count - 1], p[0], ...); count and width are powers of two, count <= width.
template <class T, int count, int width>
inline Pack<T, width> repeated(const T* p) {
  using V = Pack<T, width>;
  if constexpr (count == width) {
    return load<V>(p);
  } else if constexpr (count == 1) {
    return splat<V>(*p);
  } else {
#if defined(__AVX2__)
    return V(repeat_bytes<count * int(sizeof(T)), width * int(sizeof(T))>(p));
#else
    constexpr int half = width / 2;
    const Pack<T, half> part = repeated<T, count, half>(p);
    return joined<T, half>(part, part, UpTo<width>{});
#endif
  }
}

}  // namespace lanes
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
