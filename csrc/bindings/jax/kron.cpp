// XLA's calls of the product with a Kronecker product, and of its gradients.
#include <atomic>
#include <charconv>
#include <memory>
#include <mutex>
#include <string>

#include "bindings/jax/call.hpp"
#include "bindings/plans_by_sizes.hpp"
#include "bindings/register.hpp"
#include "engine/kron/gradients.hpp"
#include "engine/kron/plan.hpp"
#include "engine/threads.hpp"

namespace batchkron {
namespace {

// The plan for factors of some sizes, which is kept. Calls come from any thread.
template <class T>
std::shared_ptr<const KronPlan<T>> shared_plan(const std::vector<Index>& inputs,
                                               const std::vector<Index>& outputs, Index outer,
                                               Index inner) {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: calls may still run at the end
  static auto& plans = *new PlansBySizes<const KronPlan<T>>;
  std::vector<Index> sizes{outer, inner};
  for (std::size_t k = 0; k < inputs.size(); ++k)
    sizes.insert(sizes.end(), {outputs[k], inputs[k]});
  {
    const std::lock_guard<std::mutex> locked(mutex);
    if (auto plan = plans.find(sizes)) return plan;
  }
  auto plan = std::make_shared<const KronPlan<T>>(inputs, outputs, outer, inner);
  const std::lock_guard<std::mutex> locked(mutex);
  plans.insert(sizes, plan);
  return plan;
}

// Calls run(system) of all systems, of so many multiply-adds each, that are too small to be divided
// among threads themselves.
template <class T, class Run>
void run_together(Index systems, double multiply_adds, Run run) {
  static ThreadGains gains;
  const ThreadTeam team(multiply_adds * double(systems), gains);
  std::atomic<bool> failed{false};  // parts of a team's work must not throw
  team.run(systems, [&](Index begin, Index end, int) {
    try {
      for (Index system = begin; system < end; ++system) run(system);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

// A factor of P rows and Q columns for each system, or one for all.
template <class T>
struct GivenFactor {
  const T* data;
  Index P, Q, row_stride, column_stride, system_stride;
};

// The arguments from `first` on, which are (systems or 1, P, Q), or (…, Q, P) with the attribute
// `transpose`.
template <class T>
std::vector<GivenFactor<T>> given_factors(const XlaCall& call, Index first, Index systems) {
  const bool transpose = call.flag("transpose");
  std::vector<GivenFactor<T>> all;
  for (Index k = first; k < call.arguments(); ++k) {
    const xla::Buffer& factor = call.argument(k);
    if (factor.axes != 3) call.broken("axes of a factor");
    const Index sets = factor.sizes[0], rows = factor.sizes[1], columns = factor.sizes[2];
    if (sets != 1 && sets != systems) call.broken("number of systems");
    const T* data = elements<T>(factor, {sets, rows, columns});
    const Index apart = sets == 1 ? 0 : rows * columns;
    all.push_back(transpose ? GivenFactor<T>{data, columns, rows, 1, columns, apart}
                            : GivenFactor<T>{data, rows, columns, columns, 1, apart});
  }
  return all;
}

// y[s] = x[s] (A_1s (x) ... (x) A_ds) over the third axis of x (systems, outer, product of the
// factors' rows, inner); y is alike.
template <class T>
void multiply(const XlaCall& call) {
  const xla::Buffer& source = call.argument(0);
  if (source.axes != 4 || call.results() != 1) call.broken("arguments");
  const Index systems = source.sizes[0], outer = source.sizes[1], inner = source.sizes[3];
  const auto given = given_factors<T>(call, 1, systems);
  std::vector<Index> inputs, outputs;
  std::vector<FactorView<T>> factors;
  for (const GivenFactor<T>& f : given) {
    inputs.push_back(f.P);
    outputs.push_back(f.Q);
    factors.push_back({f.data, f.Q, f.P, f.column_stride, f.row_stride});
  }
  const Index input_size = checked_product(inputs), output_size = checked_product(outputs);
  const T* x = elements<T>(source, {systems, outer, input_size, inner});
  T* y = elements<T>(call.result(0), {systems, outer, output_size, inner});
  const auto plan = shared_plan<T>(inputs, outputs, outer, inner);
  const auto run = [&](Index system) {
    std::vector<FactorView<T>> own = factors;
    for (std::size_t k = 0; k < own.size(); ++k) own[k].data += system * given[k].system_stride;
    plan->run(own.data(), x + system * plan->input_elements(), T(1),
              y + system * plan->output_elements(), false);
  };
  if (plan->multiply_adds() < kMinParallelWork)
    run_together<T>(systems, plan->multiply_adds(), run);
  else
    for (Index system = 0; system < systems; ++system) run(system);
}

xla::Error* handle_kron(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) {
    with_dtype(call.argument(0), [&](auto zero) { multiply<decltype(zero)>(call); });
  });
}

// Gradients of the product of one system, of real numbers: x (1, outer, product of the factors' rows,
// inner), that of y, and the factors. The attribute `wanted` has the numbers of the operands whose
// gradients are the results, in ascending order and with spaces between: 0 for x, k + 1 for factor k.
template <class T>
void gradients(const XlaCall& call) {
  const bool transpose = call.flag("transpose");
  const xla::Buffer &source = call.argument(0), &given = call.argument(1);
  if (source.axes != 4 || source.sizes[0] != 1) call.broken("arguments");
  const Index outer = source.sizes[1], inner = source.sizes[3];
  std::vector<FactorView<T>> factors;
  Index rows = 1, columns = 1;
  for (const GivenFactor<T>& f : given_factors<T>(call, 2, 1)) {
    factors.push_back({f.data, f.P, f.Q, f.row_stride, f.column_stride});
    rows = checked_product({rows, f.P});
    columns = checked_product({columns, f.Q});
  }
  const std::size_t modes = factors.size();
  T* of_x = nullptr;
  std::vector<T*> targets(modes), results(modes);
  std::vector<std::vector<T>> turned(modes);
  // without a string stream: its locale crashes where jaxlib 0.11 has a C++ library of its own
  const std::string wanted = call.text("wanted");
  const char* const end = wanted.data() + wanted.size();
  Index number = 0;
  for (const char* at = wanted.data(); at < end; ++number) {
    Index k = -1;
    at = std::from_chars(at, end, k).ptr + 1;  // behind the space
    if (k < 0 || k > Index(modes)) call.broken("attribute");
    if (k == 0) {
      of_x = elements<T>(call.result(number), {1, outer, rows, inner});
      continue;
    }
    const FactorView<T>& factor = factors[std::size_t(k) - 1];
    const Index P = factor.K, Q = factor.C;
    T*& target = targets[std::size_t(k) - 1];
    target = elements<T>(call.result(number), {1, transpose ? Q : P, transpose ? P : Q});
    if (transpose) turned[std::size_t(k) - 1].resize(std::size_t(P * Q));
    results[std::size_t(k) - 1] = transpose ? turned[std::size_t(k) - 1].data() : target;
  }
  if (number != call.results() || number == (of_x ? 1 : 0)) call.broken("number of results");
  KronGradients<T>(factors, outer, inner)
      .run(elements<T>(source, {1, outer, rows, inner}),
           elements<T>(given, {1, outer, columns, inner}), of_x, results.data());
  for (std::size_t k = 0; k < modes; ++k)
    for (Index i = 0; i < Index(turned[k].size()); ++i)
      targets[k][i % factors[k].C * factors[k].K + i / factors[k].C] = turned[k][std::size_t(i)];
}

xla::Error* handle_gradients(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) {
    if (call.argument(0).dtype == xla::kFloat32) return gradients<float>(call);
    gradients<double>(call);
  });
}

}  // namespace

void register_jax_kron(pybind11::module_& module) {
  module.attr("jax_kron_matmul") = capsule_of(&handle_kron);
  module.attr("jax_kron_gradients") = capsule_of(&handle_gradients);
}

}  // namespace batchkron
