// Multiply-adds on the matrix units (tensor cores) in double precision, and of single precision with
// significands of 11 bits (TF32). A fragment is a small matrix whose elements are spread over the 32
// lanes of a warp. All lanes call these functions together.
#pragma once

namespace batchkron {

// d += a b, where a is 8 x 4, b is 4 x 8 and d is 8 x 8. A lane holds
//   a[lane / 4, lane % 4],  b[lane % 4, lane / 4],  d[lane / 4, 2 (lane % 4)] and the d next to it.
__device__ inline void multiply_8_8_4(double& d0, double& d1, double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d0), "+d"(d1)
      : "d"(a), "d"(b));
}

// The same with a 16 x 4 and d 16 x 8: a lane holds also those elements of a and d that lie 8 rows
// below (a8, d[2], d[3]). Before compute capability 9.0 this is two multiplies of 8 x 8 x 4.
__device__ inline void multiply_16_8_4(double (&d)[4], double a, double a8, double b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a), "d"(a8), "d"(b));
#else
  multiply_8_8_4(d[0], d[1], a, b);
  multiply_8_8_4(d[2], d[3], a8, b);
#endif
}

// The same with a 16 x 8, b 8 x 8 and d 16 x 8. With r = lane / 4 and c = lane % 4 a lane holds
//   a: a[r, c], a[r + 8, c], a[r, c + 4], a[r + 8, c + 4];  b: b[c, r], b[c + 4, r].
__device__ inline void multiply_16_8_8(double (&d)[4], const double (&a)[4], const double* b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  multiply_16_8_4(d, a[0], a[1], b[0]);
  multiply_16_8_4(d, a[2], a[3], b[1]);
#endif
}

// The same with a and b in TF32, and sums in single precision.
__device__ inline void multiply_16_8_8(float (&d)[4], const unsigned (&a)[4], unsigned b,
                                       unsigned b4) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b4));
}

// x rounded to a significand of 11 bits, ties away from zero; infinities and NaN stay what they are.
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

}  // namespace batchkron
