// Loads and stores of the first few lanes of a vector, with masks where the processor has them:
// memory behind them is not touched.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "simd/common/lanes.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace lanes {

#if defined(__AVX2__) && !defined(__AVX512VL__)
// Eight words of ones, then eight of zeros: eight words from number 8 - count on are a mask for the
// first `count`.
alignas(64) constexpr std::int32_t kSetThenClear[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

inline __m256i first_words(int count) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kSetThenClear + 8 - count));
}
#endif

// Returns (p[0], ..., p[count - 1], 0, ...); 1 <= count <= width.
template <class T, int width>
inline Pack<T, width> load_first(const T* p, int count) {
  using V = Pack<T, width>;
  if constexpr (width == 1) {
    return load<V>(p);
  } else {
    [[maybe_unused]] constexpr int bytes = width * int(sizeof(T));
#if defined(__AVX512VL__)
    const auto mask = (1u << count) - 1;
    if constexpr (bytes == 64 && sizeof(T) == 8)
      return V(_mm512_maskz_loadu_pd(__mmask8(mask), p));
    else if constexpr (bytes == 64)
      return V(_mm512_maskz_loadu_ps(__mmask16(mask), p));
    else if constexpr (bytes == 32 && sizeof(T) == 8)
      return V(_mm256_maskz_loadu_pd(__mmask8(mask), p));
    else if constexpr (bytes == 32)
      return V(_mm256_maskz_loadu_ps(__mmask8(mask), p));
    else if constexpr (bytes == 16 && sizeof(T) == 8)
      return V(_mm_maskz_loadu_pd(__mmask8(mask), p));
    else if constexpr (bytes == 16)
      return V(_mm_maskz_loadu_ps(__mmask8(mask), p));
#elif defined(__AVX2__)
    if constexpr (bytes == 32 && sizeof(T) == 8)
      return V(_mm256_maskload_pd(p, first_words(2 * count)));
    else if constexpr (bytes == 32)
      return V(_mm256_maskload_ps(p, first_words(count)));
#endif
    if (count == width) return load<V>(p);
    V v{};
    for (int i = 0; i < width; ++i)
      if (i < count) v[i] = p[i];
    return v;
  }
}

// Stores the first `count` lanes; 1 <= count <= width.
template <class T, int width>
inline void store_first(T* p, Pack<T, width> v, int count) {
  if constexpr (width == 1) {
    store(p, v);
  } else {
    [[maybe_unused]] constexpr int bytes = width * int(sizeof(T));
#if defined(__AVX512VL__)
    const auto mask = (1u << count) - 1;
    if constexpr (bytes == 64 && sizeof(T) == 8)
      return _mm512_mask_storeu_pd(p, __mmask8(mask), __m512d(v));
    else if constexpr (bytes == 64)
      return _mm512_mask_storeu_ps(p, __mmask16(mask), __m512(v));
    else if constexpr (bytes == 32 && sizeof(T) == 8)
      return _mm256_mask_storeu_pd(p, __mmask8(mask), __m256d(v));
    else if constexpr (bytes == 32)
      return _mm256_mask_storeu_ps(p, __mmask8(mask), __m256(v));
    else if constexpr (bytes == 16 && sizeof(T) == 8)
      return _mm_mask_storeu_pd(p, __mmask8(mask), __m128d(v));
    else if constexpr (bytes == 16)
      return _mm_mask_storeu_ps(p, __mmask8(mask), __m128(v));
#elif defined(__AVX2__)
    if constexpr (bytes == 32 && sizeof(T) == 8)
      return _mm256_maskstore_pd(p, first_words(2 * count), __m256d(v));
    else if constexpr (bytes == 32)
      return _mm256_maskstore_ps(p, first_words(count), __m256(v));
#endif
    if (count == width) return store(p, v);
    for (int i = 0; i < width; ++i)
      if (i < count) p[i] = v[i];
  }
}

}  // namespace lanes
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
