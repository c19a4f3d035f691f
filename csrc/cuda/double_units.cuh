// A multiply-add of fragments on the matrix units of double precision.
#pragma once

namespace batchkron {

// d += a b on the matrix units of double precision. A lane has of a: row lane / 4 (and + 8) of
// column lane % 4; of b: row lane % 4 of column lane / 4; of d: rows as of a, columns 2 (lane % 4)
// and + 1.
__device__ inline void multiply_16_8_4(double (&d)[4], double a, double a8, double b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a), "d"(a8), "d"(b));
#else
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[2]), "+d"(d[3])
      : "d"(a8), "d"(b));
#endif
}

}  // namespace batchkron
