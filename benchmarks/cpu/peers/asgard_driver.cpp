// Plain C names for ASGarD's batch kernel on a CPU. Built by asgard.py against ASGarD's own source.
#include "asgard_kronmult.hpp"

namespace {

// y[i] = sum over the products of row i of (A_1 x ... x A_d) x[columns[j]]: products
// starts[i] ... starts[i + 1] - 1, d offsets into `matrices` for each, slowest mode first.
template <class T>
int multiply(int modes, int size, int rows, const int* starts, const int* columns,
             const int* offsets, const T* matrices, const T* x, T* y) {
  try {
    asgard::kronmult::cpu_sparse<T>(modes, size, rows, starts, columns, 1, offsets, matrices, T(1),
                                    x, T(0), y);
  } catch (...) {
    return 1;
  }
  return 0;
}

}  // namespace

extern "C" int multiply_float64(int modes, int size, int rows, const int* starts,
                                const int* columns, const int* offsets, const double* matrices,
                                const double* x, double* y) {
  return multiply(modes, size, rows, starts, columns, offsets, matrices, x, y);
}

extern "C" int multiply_float32(int modes, int size, int rows, const int* starts,
                                const int* columns, const int* offsets, const float* matrices,
                                const float* x, float* y) {
  return multiply(modes, size, rows, starts, columns, offsets, matrices, x, y);
}
