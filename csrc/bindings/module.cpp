#include "bindings/register.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled core of batchkron. Private: call the functions of batchkron.";
  batchkron::register_runtime(module);
  batchkron::register_interpolation(module);
  batchkron::register_jax_batch(module);
  batchkron::register_jax_kron(module);
  batchkron::register_jax_kron_sparse(module);
  batchkron::register_jax_python_call(module);
  batchkron::register_kron(module);
  batchkron::register_krylov(module);
  batchkron::register_launch(module);
  batchkron::register_product(module);
  batchkron::register_batch(module);
  batchkron::register_kron_sparse(module);
  batchkron::register_segmented(module);
  batchkron::register_sweeps(module);
  batchkron::register_small(module);
}
