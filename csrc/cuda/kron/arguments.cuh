// The arguments, and the contract, of the kernels that multiply by some neighbouring factors of a
// Kronecker product in one pass over memory (kron_fibres, kron_registers, kron_slices,
// kron_panels).
#pragma once

#include "cuda/common/steps.cuh"

namespace batchkron {

//   y[l, k_g, ..., k_h, r] = alpha sum_{c_g, ..., c_h} A_g[k_g, c_g] ... A_h[k_h, c_h]
//                                  x[l, c_g, ..., c_h, r]  +  beta previous[l, k_g, ..., k_h, r]
// x is (L, C_g ... C_h, R); y and previous are (L, K_g ... K_h, R); all are C-contiguous and
// aligned to an element (a complex one to one part); kernels use wider words where addresses allow
// it. previous may be y, or null: then its term is left out and y is never read (beta = 0). y
// overlaps neither x nor a factor. Factors have any strides. L, R and the sizes are positive;
// kernels handle the ragged edges of their tiles.
template <class T, int count>
struct KronArguments {
  const T* x;
  T* y;
  const T* previous;
  Factor<T> factors[count];
  Index L, R;
  T alpha, beta;
};

// Arguments of a kernel whose results do not go to an array (L, K_g ... K_h, R), but to the memory
// of `parts` owners, which may be that of other devices that is mapped here. Owner d has the rows
// k_g of d K_g / parts <= k_g < (d + 1) K_g / parts. y is not used, and previous is null.
//   to_d[(l / group) vector + (l % group) slice + (k - d K_g / parts, k_(g+1), ..., k_h) row + r]
// `row` elements lie between rows of R elements, of which the last factors' are neighbours. aligned:
// whether all of these places are aligned to words of 16 bytes where r is a multiple of a word.
template <class T, int count, int parts>
struct SpreadArguments : KronArguments<T, count> {
  T* to[parts];
  Index group, vector, slice, row, aligned;
};

}  // namespace batchkron
