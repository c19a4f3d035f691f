#include <pybind11/numpy.h>

#include "bindings/register.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled core of batchkron. Private: call the functions of batchkron.";
  // Finds NumPy's C API before threads can: it is found without the interpreter lock, so that first
  // calls of two threads could wait for each other for ever, each with a lock that the other needs.
  pybind11::dtype::of<double>();
  batchkron::register_runtime(module);
  batchkron::register_step_program(module);
  batchkron::register_fields(module);
  batchkron::register_interpolation(module);
  batchkron::register_jax_batch(module);
  batchkron::register_jax_device_call(module);
  batchkron::register_jax_kron(module);
  batchkron::register_jax_kron_sparse(module);
  batchkron::register_jax_python_call(module);
  batchkron::register_kron(module);
  batchkron::register_krylov(module);
  batchkron::register_launch(module);
  batchkron::register_multiply(module);
  batchkron::register_product(module);
  batchkron::register_batch(module);
  batchkron::register_kron_sparse(module);
  batchkron::register_segmented(module);
  batchkron::register_sweeps(module);
  batchkron::register_small(module);
}
