// XLA's calls of a batch list of Kronecker products.
#include <algorithm>

#include "bindings/jax/call.hpp"
#include "bindings/register.hpp"
#include "engine/batch/list_call.hpp"

namespace batchkron {
namespace {

// The numbers of a list, of either size.
ListNumbers numbers(const xla::Buffer& buffer, std::initializer_list<Index> sizes) {
  if (buffer.dtype == xla::kInt32) return elements<std::int32_t>(buffer, sizes);
  return elements<Index>(buffer, sizes);
}

// Throws for the first of `count` numbers that is out of range.
void check_numbers(const std::string& name, const ListNumbers& numbers, Index count, Index first,
                   Index step, Index limit) {
  for (Index b = 0; b < count; ++b) {
    const Index number = numbers[b * step + first];
    if (number < 0 || number >= limit) {
      const std::string column = step > 1 ? ", " + std::to_string(first) : "";
      throw std::out_of_range(name + "[" + std::to_string(b) + column + "] is " +
                              std::to_string(number) + "; expected 0 to " +
                              std::to_string(limit - 1));
    }
  }
}

// y = the products of a list. Arguments are x (outer, num_inputs, product of inputs), weights
// (products,), for each mode a pool (count, outputs, inputs), and factor ids (products, modes),
// inputs and outputs (products,); y is (outer, num_outputs, product of outputs).
template <class T>
void add_products(const XlaCall& call) {
  const Index modes = call.arguments() - 5;
  const xla::Buffer& x = call.argument(0);
  if (modes < 1 || x.axes != 3 || call.result(0).axes != 3) call.broken("arguments");
  const Index products = call.argument(call.arguments() - 1).sizes[0];
  ListCall<T> list;
  for (Index k = 0; k < modes; ++k) {
    const xla::Buffer& pool = call.argument(k + 2);
    if (pool.axes != 3 || pool.sizes[0] > ListCall<T>::kMaxMatrices) call.broken("size of a pool");
    const Index count = pool.sizes[0], rows = pool.sizes[1], columns = pool.sizes[2];
    list.add_pool(elements<T>(pool, {count, rows, columns}), count, rows, columns);
  }
  list.outer = x.sizes[0];
  list.shape.num_inputs = x.sizes[1];
  list.shape.num_outputs = call.result(0).sizes[1];
  list.x = elements<T>(x, {list.outer, list.shape.num_inputs, list.shape.input_size()});
  const Index size = list.shape.output_size();
  list.y = elements<T>(call.result(0), {list.outer, list.shape.num_outputs, size});
  list.weights = elements<T>(call.argument(1), {products});
  list.list.count = products;
  list.list.ids = numbers(call.argument(modes + 2), {products, modes});
  list.list.inputs = numbers(call.argument(modes + 3), {products});
  list.list.outputs = numbers(call.argument(modes + 4), {products});
  std::fill_n(list.y, checked_product({list.outer, list.shape.num_outputs, size}), T{});
  if (list.run([](double) {})) return;
  for (Index k = 0; k < modes; ++k)
    check_numbers("factor_ids", list.list.ids, products, k, modes, list.list.limits[std::size_t(k)]);
  check_numbers("inputs", list.list.inputs, products, 0, 1, list.shape.num_inputs);
  check_numbers("outputs", list.list.outputs, products, 0, 1, list.shape.num_outputs);
  call.broken("numbers of a list");
}

xla::Error* handle_batch(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) {
    with_dtype(call.argument(0), [&](auto zero) { add_products<decltype(zero)>(call); });
  });
}

}  // namespace

void register_jax_batch(pybind11::module_& module) {
  module.attr("jax_batched_kron") = capsule_of(&handle_batch);
}

}  // namespace batchkron
