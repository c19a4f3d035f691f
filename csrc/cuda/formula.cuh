// The values of a formula at points:
//
//   y[i] = f(x_0[i], ..., x_(variables - 1)[i], numbers)   for i < count.
//
// The formula is a type, a tree of the templates in batchkron::formula. Arrays are contiguous and
// aligned to an element; y may be one of the x_k, and overlaps the others nowhere. Any count: a thread
// checks each of its elements against the end.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <int variables>
struct FormulaArguments {
  const double* x[variables];
  double* y;
  const double* numbers;
  Index count;
};

namespace formula {

// What the leaves of a tree read.
struct Point {
  const double* const* x;
  const double* numbers;
  Index i;
};

template <int k>
struct Variable {
  __device__ static double at(const Point& p) { return p.x[k][p.i]; }
};
template <int k>
struct Number {
  __device__ static double at(const Point& p) { return p.numbers[k]; }
};
template <class A, class B>
struct Sum {
  __device__ static double at(const Point& p) { return A::at(p) + B::at(p); }
};
template <class A, class B>
struct Difference {
  __device__ static double at(const Point& p) { return A::at(p) - B::at(p); }
};
template <class A, class B>
struct Product {
  __device__ static double at(const Point& p) { return A::at(p) * B::at(p); }
};
template <class A, class B>
struct Quotient {
  __device__ static double at(const Point& p) { return A::at(p) / B::at(p); }
};
template <class A, class B>
struct Power {
  __device__ static double at(const Point& p) { return pow(A::at(p), B::at(p)); }
};
template <class A>
struct Square {
  __device__ static double at(const Point& p) {
    const double a = A::at(p);
    return a * a;
  }
};
template <class A>
struct Negative {
  __device__ static double at(const Point& p) { return -A::at(p); }
};
template <class A>
struct Exp {
  __device__ static double at(const Point& p) { return exp(A::at(p)); }
};
template <class A>
struct Sqrt {
  __device__ static double at(const Point& p) { return sqrt(A::at(p)); }
};
template <class A>
struct Sin {
  __device__ static double at(const Point& p) { return sin(A::at(p)); }
};
template <class A>
struct Cos {
  __device__ static double at(const Point& p) { return cos(A::at(p)); }
};

}  // namespace formula

template <int threads, int variables, class Tree>
__global__ void __launch_bounds__(threads) formula_values(FormulaArguments<variables> a) {
  wait_for_earlier_kernels();
  const Index stride = Index(gridDim.x) * threads;
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < a.count; i += stride)
    a.y[i] = Tree::at({a.x, a.numbers, i});
}

}  // namespace batchkron
