// Copies between memory and tiles (contract: simd/kron/table.hpp, copy_rows and stream).
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "simd/kron/mode_multiply.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
void copy_rows(T* to, const T* from, Index count, Index width, Index stride) {
  constexpr int lanes = widest<T>;
  for (Index i = 0; i < count; ++i, to += width, from += stride) {
    Index r = 0;
    for (; r + lanes <= width; r += lanes) store<lanes>(to + r, load<lanes>(from + r));
    for (; r < width; ++r) to[r] = from[r];
  }
}

// A non-temporal store of one vector to an aligned address: the processor does not read the cache
// line before.
inline void stream_vector(void* to, const void* from) {
#if BATCHKRON_VECTOR_BYTES == 64
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif BATCHKRON_VECTOR_BYTES == 32
  _mm256_stream_si256(static_cast<__m256i*>(to),
                      _mm256_loadu_si256(static_cast<const __m256i*>(from)));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
#else
  typedef long Vector2 __attribute__((vector_size(16), aligned(1), may_alias));
  *static_cast<Vector2*>(to) = *static_cast<const Vector2*>(from);
#endif
}

template <class T>
void stream(T* to, const T* from, Index elements) {
  constexpr int lanes = widest<T>;
  Index i = 0;
  while (i < elements && reinterpret_cast<std::uintptr_t>(to + i) % BATCHKRON_VECTOR_BYTES) {
    to[i] = from[i];
    ++i;
  }
  for (; i + lanes <= elements; i += lanes) stream_vector(to + i, from + i);
  for (; i < elements; ++i) to[i] = from[i];
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
