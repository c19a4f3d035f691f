// XLA's calls of the product with a Kronecker-sparse matrix.
#include "bindings/jax/call.hpp"
#include "bindings/register.hpp"
#include "engine/kron_sparse/once.hpp"

namespace batchkron {
namespace {

// y (outer, rows, inner) = K x, for x (outer, columns, inner) and values (a, b, c, d).
template <class T>
void multiply_sparse(const XlaCall& call) {
  const xla::Buffer &x = call.argument(0), &values = call.argument(1);
  if (x.axes != 3 || values.axes != 4) call.broken("arguments");
  const SparseShape shape{values.sizes[0], values.sizes[1], values.sizes[2], values.sizes[3]};
  const KronSparsePlan<T> plan(shape);
  const Index outer = x.sizes[0], inner = x.sizes[2];
  multiply_once(plan, elements<T>(values, {shape.a, shape.b, shape.c, shape.d}),
                elements<T>(x, {outer, plan.columns(), inner}),
                elements<T>(call.result(0), {outer, plan.rows(), inner}), outer, inner);
}

xla::Error* handle_sparse(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) {
    with_dtype(call.argument(0), [&](auto zero) { multiply_sparse<decltype(zero)>(call); });
  });
}

}  // namespace

void register_jax_kron_sparse(pybind11::module_& module) {
  module.attr("jax_kronecker_sparse") = capsule_of(&handle_sparse);
}

}  // namespace batchkron
