// What the machine can do at most: multiply-adds from registers, and traffic beyond the caches.
// Compiled by ceilings.py for the processor that it runs on.
#include <stddef.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define CHAINS 12  // independent sums: enough to hide a latency of four cycles on two units

typedef double vector __attribute__((vector_size(VECTOR_BYTES)));

#define MULTIPLY_ADDS(name, real)                                          \
  long name##_flops(void) { return 2 * CHAINS * (VECTOR_BYTES / (long)sizeof(real)); } \
  real name(long rounds, int threads, real factor) {                       \
    typedef real numbers __attribute__((vector_size(VECTOR_BYTES)));       \
    real total = 0;                                                        \
    _Pragma("omp parallel num_threads(threads) reduction(+ : total)") {    \
      numbers sums[CHAINS];                                                \
      numbers scale = {0};                                                 \
      scale += factor;                                                     \
      for (int i = 0; i < CHAINS; ++i) sums[i] = scale + (real)i;          \
      for (long round = 0; round < rounds; ++round) {                      \
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; ++i)          \
            sums[i] = sums[i] * scale + scale;                             \
      }                                                                    \
      for (int i = 0; i < CHAINS; ++i) total += sums[i][0];                \
    }                                                                      \
    return total;                                                          \
  }

MULTIPLY_ADDS(fma_float64, double)
MULTIPLY_ADDS(fma_float32, float)

// Traffic: `count` vectors of each array, split evenly among the threads.
#define TRAFFIC(name, store, value)                                                  \
  void name(vector* restrict a, const vector* restrict b, const vector* restrict c, \
            long count, int threads) {                                               \
    (void)b, (void)c;                                                                \
    const vector one = (vector){0} + 1.0, three = (vector){0} + 3.0;                 \
    (void)one, (void)three;                                                          \
    _Pragma("omp parallel for num_threads(threads) schedule(static)")                \
    for (long i = 0; i < count; ++i) store(a + i, value);                            \
  }

static inline void store(vector* to, vector value) { *to = value; }
TRAFFIC(fill, store, one)
TRAFFIC(copy, store, b[i])
TRAFFIC(triad, store, b[i] + three * c[i])

#ifdef __SSE2__
#include <immintrin.h>
static inline void stream(vector* to, vector value) {
#if defined(__AVX512F__)
  _mm512_stream_pd((double*)to, value);
#elif defined(__AVX__)
  _mm256_stream_pd((double*)to, value);
#else
  _mm_stream_pd((double*)to, value);
#endif
}
TRAFFIC(fill_nontemporal, stream, one)
TRAFFIC(copy_nontemporal, stream, b[i])
TRAFFIC(triad_nontemporal, stream, b[i] + three * c[i])
#endif

long vector_bytes(void) { return VECTOR_BYTES; }
