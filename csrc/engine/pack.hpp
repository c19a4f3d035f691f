// Packing: copies factors into the layout that the kernels read (simd/common/packed_factor.hpp).
#pragma once

#include <algorithm>

#include "simd/common/packed_factor.hpp"

namespace batchkron {

// A factor as the user holds it: K x C (output index first), any strides, counted in elements.
template <class T>
struct FactorView {
  const T* data;
  Index K, C;
  Index stride_k, stride_c;
};

// Elements of a packed K x C factor.
template <class T>
Index packed_size(Index K, Index C) {
  return C * packed_stride<T>(K);
}

// packed[c * stride + k] = factor[k, c], zeros in the padding.
template <class T>
void pack(const FactorView<T>& factor, T* packed) {
  const Index stride = packed_stride<T>(factor.K);
  for (Index c = 0; c < factor.C; ++c) {
    T* row = packed + c * stride;
    const T* first = factor.data + c * factor.stride_c;
    if (factor.stride_k == 1)  // said apart, as the compiler then copies vectors
      std::copy_n(first, factor.K, row);
    else
      for (Index k = 0; k < factor.K; ++k) row[k] = first[k * factor.stride_k];
    for (Index k = factor.K; k < stride; ++k) row[k] = T{};
  }
}

// Writes factors[0] (x) ... (x) factors[count - 1] as one packed factor of K x C, the products of
// the factors' sizes.
template <class T>
void pack_product(const FactorView<T>* factors, int count, Index K, Index C, T* packed) {
  if (count == 1) return pack(*factors, packed);
  const Index stride = packed_stride<T>(K);
  for (Index c = 0; c < C; ++c)
    for (Index k = 0; k < stride; ++k) {
      T product(1);
      Index c_left = c, k_left = k;
      for (int i = count - 1; k < K && i >= 0; --i) {
        const FactorView<T>& f = factors[i];
        product = product * f.data[k_left % f.K * f.stride_k + c_left % f.C * f.stride_c];
        k_left /= f.K;
        c_left /= f.C;
      }
      packed[c * stride + k] = k < K ? product : T{};
    }
}

}  // namespace batchkron
