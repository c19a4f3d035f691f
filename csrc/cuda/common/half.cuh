// Numbers of 16 bits, which are stored only: all arithmetic with them is in single precision, or on
// matrix units with sums in single precision. No header is included, as NVRTC finds none but its
// own.
#pragma once

namespace batchkron {

// IEEE half precision, NumPy's float16.
struct Half {
  unsigned short bits;
};
// The upper half of a number in single precision, bfloat16.
struct Bfloat {
  unsigned short bits;
};

// A number as it takes part in sums, and a sum as it is stored, rounded to nearest even.
template <class T>
__device__ T widened(T value) { return value; }
__device__ inline float widened(Half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline float widened(Bfloat value) {
  return __uint_as_float(unsigned(value.bits) << 16);
}

template <class T>
struct Narrowed {
  __device__ static T make(T value) { return value; }
};
template <>
struct Narrowed<Half> {
  __device__ static Half make(float value) {
    Half result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
};
template <>
struct Narrowed<Bfloat> {
  __device__ static Bfloat make(float value) {
    Bfloat result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
};

// The type of sums of products of T.
template <class T>
struct SumOf {
  using Type = T;
};
template <>
struct SumOf<Half> {
  using Type = float;
};
template <>
struct SumOf<Bfloat> {
  using Type = float;
};

// d += a b on matrix units, where a is 16 x 16, b is 16 x 8 and d is 16 x 8. With r = lane / 4 and
// c = 2 (lane % 4) a lane holds pairs of neighbours in the sum's index:
//   a: a[r, c..], a[r + 8, c..], a[r, c + 8..], a[r + 8, c + 8..];  b: b[c.., r], b[c + 8.., r];
//   d: d[r, c], d[r, c + 1], d[r + 8, c], d[r + 8, c + 1].
template <class T>
__device__ void multiply_16_8_16(float (&d)[4], const unsigned (&a)[4], unsigned b, unsigned b8);
template <>
__device__ inline void multiply_16_8_16<Half>(float (&d)[4], const unsigned (&a)[4], unsigned b,
                                              unsigned b8) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b8));
}
template <>
__device__ inline void multiply_16_8_16<Bfloat>(float (&d)[4], const unsigned (&a)[4], unsigned b,
                                                unsigned b8) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b8));
}

}  // namespace batchkron
