// Compiles the kernels of Kronecker-sparse matrices for one instruction set.
#include "simd/kron_sparse/multiply.hpp"
#include "simd/kron_sparse/pieces.hpp"
#include "simd/kron_sparse/strips.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace {

// The kernels for pieces of 2^power elements and for smaller ones.
template <class T, int power>
constexpr void add_kernels(SparseKernels<T>& table) {
  constexpr int piece = 1 << power;
  if constexpr (piece <= widest<T>) {
    table.multiply[power][0] = sparse::multiply<T, piece, kPanelRows[0]>;
    table.multiply[power][1] = sparse::multiply<T, piece, kPanelRows[1]>;
    table.multiply[power][2] = sparse::multiply<T, piece, kPanelRows[2]>;
  }
  if constexpr (piece < widest<T>) {
    table.to_pieces[power] = sparse::to_pieces<T, piece>;
    table.from_pieces[power] = sparse::from_pieces<T, piece>;
  }
  if constexpr (power > 0) add_kernels<T, power - 1>(table);
}

template <class T>
constexpr SparseKernels<T> sparse_kernels_of() {
  SparseKernels<T> table{widest<T>, sparse::tile_vectors<T>, {}, sparse::multiply_strip<T>,
                         {},        {},                      sparse::copy_vectors<T>};
  add_kernels<T, kMaxPieces - 1>(table);
  return table;
}

}  // namespace

extern const SparseKernelTable sparse_table = {
    sparse_kernels_of<float>(), sparse_kernels_of<double>(), sparse_kernels_of<Complex<float>>(),
    sparse_kernels_of<Complex<double>>()};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
