// Multiply-adds of fragments on the matrix units of double precision.
#pragma once

namespace batchkron {

// d += a b by fragments of 8 x 8 x 4. A lane has of a: row lane / 4 of column lane % 4; of b: row
// lane % 4 of column lane / 4; of d: row lane / 4 of columns 2 (lane % 4) and + 1.
__device__ inline void multiply_8_8_4(double& d0, double& d1, double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d0), "+d"(d1)
      : "d"(a), "d"(b));
}

// The same by fragments of 16 x 8 x 4: of a and d a lane has both rows lane / 4 and + 8.
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

// The same by fragments of 16 x 8 x 8: of a rows lane / 4 and + 8 of column lane % 4, then both of
// the column four on; of b rows lane % 4 and + 4.
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

}  // namespace batchkron
