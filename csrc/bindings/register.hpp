// Each function adds the classes and functions of the file of its name to the module
// batchkron._core; register_jax_… those of the files in jax/.
#pragma once

#include <pybind11/pybind11.h>

namespace batchkron {

void register_fields(pybind11::module_& module);
void register_interpolation(pybind11::module_& module);
void register_jax_batch(pybind11::module_& module);
void register_jax_device_call(pybind11::module_& module);
void register_jax_kron(pybind11::module_& module);
void register_jax_kron_sparse(pybind11::module_& module);
void register_jax_python_call(pybind11::module_& module);
void register_kron(pybind11::module_& module);
void register_krylov(pybind11::module_& module);
void register_launch(pybind11::module_& module);
void register_multiply(pybind11::module_& module);
void register_product(pybind11::module_& module);
void register_batch(pybind11::module_& module);
void register_kron_sparse(pybind11::module_& module);
void register_segmented(pybind11::module_& module);
void register_step_program(pybind11::module_& module);
void register_sweeps(pybind11::module_& module);
void register_small(pybind11::module_& module);
void register_runtime(pybind11::module_& module);

}  // namespace batchkron
