// Sums of single-mode multiplies over the edges of nodes, and the choice between their kernels
// (contract: sweep_kernel_table.hpp). Included by isa/sweep_kernels.cpp only.
#pragma once

#include "engine/sweep_flat.hpp"
#include "engine/sweep_panels.hpp"
#include "engine/sweep_rows.hpp"
#include "engine/sweep_shared_vectors.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

template <class T, int n, int R>
constexpr SweepKernel<T> flat_kernel() {
  if constexpr (kWidth<T> > 1 && n * R <= kWidth<T>)
    return {flats<T, n, R>, n * flat::Groups<T, n, R>::pattern, lay_out_flat<T, n, R>};
  else
    return {nullptr, 0, nullptr};
}

template <class T>
constexpr SweepKernel<T> find_flat(Index n, Index R) {
  if (n == 2 && R == 1) return flat_kernel<T, 2, 1>();
  if (n == 2 && R == 2) return flat_kernel<T, 2, 2>();
  if (n == 2 && R == 4) return flat_kernel<T, 2, 4>();
  if (n == 3 && R == 1) return flat_kernel<T, 3, 1>();
  if (n == 4 && R == 1) return flat_kernel<T, 4, 1>();
  if (n == 4 && R == 4) return flat_kernel<T, 4, 4>();
  if (n == 5 && R == 1) return flat_kernel<T, 5, 1>();
  if (n == 6 && R == 1) return flat_kernel<T, 6, 1>();
  return {nullptr, 0, nullptr};
}

template <class T, int n>
constexpr void (*find_shared(Index R))(const SweepTask<T>&) {
  constexpr int width = kWidth<T>;
  if constexpr (width >= 4)
    if (R == 2) return shared<T, n, 2>;
  if constexpr (width >= 8)
    if (R > 2 && R <= 4) return shared<T, n, 4>;
  if constexpr (width >= 16)
    if (R > 4 && R <= 8) return shared<T, n, 8>;
  return nullptr;
}

template <class T>
constexpr auto find_plain(Index L, Index n, Index R) -> void (*)(const SweepTask<T>&) {
  void (*found)(const SweepTask<T>&) = nullptr;
  if (L > 1) {
    if (n == 2) found = find_shared<T, 2>(R);
    if (n == 3) found = find_shared<T, 3>(R);
    if (n == 4) found = find_shared<T, 4>(R);
  }
  if (found) return found;
  if (kWidth<T> > 1 && R == 1 && n > 4) return rows<T>;
  if (n == 1) return panels<T, 1>;
  if (n == 2) return panels<T, 2>;
  if (n == 3) return panels<T, 3>;
  if (n == 4) return panels<T, 4>;
  return panels<T, 0>;
}

template <class T>
SweepKernel<T> find(Index L, Index n, Index R, bool plain) {
  if constexpr (kWidth<T> > 1) {
    const SweepKernel<T> kernel = find_flat<T>(n, R);
    if (kernel.add_edges && !plain) return kernel;
  }
  return {find_plain<T>(L, n, R), n * n, lay_out_plain<T>};
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
