// Multiply-adds of matrix units whose operands are single precision with significands of 11 bits
// (TF32), and numbers as such operands.
#pragma once

namespace batchkron {

// x rounded to a significand of 11 bits, ties away from zero; infinities and NaN stay what they
// are.
__device__ inline unsigned nearest_tf32(float x) {
  unsigned result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}

// x as high + low. The low part of an infinity or a NaN is NaN; the high part of a NaN may be
// anything.
struct Tf32Parts {
  unsigned high, low;

  Tf32Parts() = default;
  __device__ explicit Tf32Parts(float x)
      : high((__float_as_uint(x) + 0x1000u) & 0xffffe000u),
        low(__float_as_uint(x - __uint_as_float(high))) {}
};

// d += a b, where a is 16 x 8, b is 8 x 8 and d is 16 x 8. With r = lane / 4 and c = lane % 4 a
// lane holds
//   a: a[r, c], a[r + 8, c], a[r, c + 4], a[r + 8, c + 4];  b: b[c, r], b[c + 4, r];
//   d: d[r, 2 c], d[r, 2 c + 1], d[r + 8, 2 c], d[r + 8, 2 c + 1].
__device__ inline void multiply_16_8_8(float (&d)[4], const unsigned (&a)[4], unsigned b,
                                       unsigned b4) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b4));
}

}  // namespace batchkron
