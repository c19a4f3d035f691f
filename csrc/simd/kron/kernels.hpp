// The table of Kronecker products' kernels for one element type and one instruction set.
#pragma once

#include "simd/kron/copies.hpp"
#include "simd/kron/explicit_rows.hpp"
#include "simd/kron/gram.hpp"
#include "simd/kron/lane_tile.hpp"
#include "simd/kron/row_multiply.hpp"
#include "simd/kron/table.hpp"
#include "simd/kron/tensor_multiply.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
constexpr auto gram_kernel() -> void (*)(const GramTask<T>&) {
  if constexpr (Element<T>::reals == 1)
    return gram<T>;
  else
    return nullptr;
}

template <class T, int n>
constexpr auto sized_panel = panel<T, known_size(n)>;
template <class T, int n>
constexpr auto sized_rows = rows<T, known_size(n)>;

template <class T>
constexpr ModeKernels<T> mode_kernels_of() {
  return {
      {panel<T, 0>, sized_panel<T, 1>, sized_panel<T, 2>, sized_panel<T, 3>, sized_panel<T, 4>,
       sized_panel<T, 5>, sized_panel<T, 6>, sized_panel<T, 7>, sized_panel<T, 8>},
      {rows<T, 0>, sized_rows<T, 1>, sized_rows<T, 2>, sized_rows<T, 3>, sized_rows<T, 4>,
       sized_rows<T, 5>, sized_rows<T, 6>, sized_rows<T, 7>, sized_rows<T, 8>},
      {{}, {}, {}, {},
       {nullptr, nullptr, last_modes_kernel<T, 4, 2>(), last_modes_kernel<T, 4, 3>()}, {}, {}, {},
       {nullptr, nullptr, last_modes_kernel<T, 8, 2>()}},
      {nullptr, nullptr, nullptr, mode_pair_kernel<T, 3>(), mode_pair_kernel<T, 4>()},
      widest<T>,
      to_lanes<T>,
      from_lanes<T>,
      copy_rows<T>,
      scale<T>,
      scale_past<T>,
      multiply_periodic<T>,
      stream<T>,
      gram_kernel<T>(),
  };
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
