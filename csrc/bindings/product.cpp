// Kronecker products and sums that keep their factors packed, and a plan for each number of vectors
// that they were applied to.
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <deque>
#include <memory>

#include "bindings/plain_call.hpp"
#include "bindings/register.hpp"
#include "engine/kron/plan.hpp"

namespace batchkron {
namespace {

constexpr std::size_t kMaxPlans = 64;  // plans that a product keeps; chosen by hand

// The product of the sizes; beyond 64 bits -1, which is the size of no array.
Index size_of(const std::vector<Index>& sizes) {
  Index product = 1;
  for (const Index size : sizes)
    if (__builtin_mul_overflow(product, size, &product)) return -1;
  return product;
}

// Plans by the numbers of vectors before and behind the modes. The caller holds the interpreter
// lock. Plans are shared pointers, as another thread may still run one that is dropped here.
template <class Plan>
class PlanCache {
 public:
  template <class Make>
  std::shared_ptr<const Plan> get(Index outer, Index inner, Make make) {
    for (const Entry& entry : entries_)
      if (entry.outer == outer && entry.inner == inner) return entry.plan;
    if (entries_.size() >= kMaxPlans) entries_.clear();
    entries_.push_back({outer, inner, std::make_shared<const Plan>(make())});
    return entries_.back().plan;
  }

 private:
  struct Entry {
    Index outer, inner;
    std::shared_ptr<const Plan> plan;
  };

  std::vector<Entry> entries_;
};

// I (x) A_1 (x) ... (x) A_m (x) I: factors on consecutive modes, and the identity on the modes
// before and behind. An int n among the factors is an identity between others, of n rows.
template <class T>
struct Term {
  std::vector<Index> inputs, outputs;
  std::vector<bool> skipped;          // which factors are such identities; empty if none is
  std::vector<Index> before, behind;  // sizes of the other modes
  PackedFactors<T> packed;

  Term(const std::vector<py::object>& factors, std::vector<Index> sizes_before,
       std::vector<Index> sizes_behind)
      : before(std::move(sizes_before)), behind(std::move(sizes_behind)) {
    if (factors.empty()) fail("factors", "at least one");
    std::vector<FactorView<T>> views;
    for (const py::object& given : factors) {
      if (py::isinstance<py::int_>(given)) {
        skipped.resize(factors.size());
        skipped[views.size()] = true;
        outputs.push_back(given.cast<Index>());
        inputs.push_back(outputs.back());
        views.emplace_back();
        continue;
      }
      const auto factor = given.cast<py::array>();
      if (factor.ndim() != 2) fail("a factor", "two-dimensional");
      views.push_back(factor_view<T>(factor, factor.shape(0), factor.shape(1)));
      outputs.push_back(factor.shape(0));
      inputs.push_back(factor.shape(1));
    }
    packed.fill(merge_factors(inputs, outputs, skipped), views.data());
  }
};

// A sum of terms, each of which maps vectors of `columns` elements to vectors of `rows` elements.
template <class T>
class Terms {
 public:
  // y = alpha A x, or +=, with x (outer, columns, inner) and y (outer, rows, inner).
  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) {
    if (outer < 0 || inner < 0) fail("numbers of vectors", "not negative");
    const auto plans = plans_for(outer, inner);
    const T* source = read<T>(x, plans->front().input_elements(), "x");
    T* target = write<T>(y, plans->front().output_elements(), "y");
    apply_plans(*plans, source, scalar<T>(alpha), target, accumulate);
  }

  // out[..., :] = A x[..., :] by the fast path (bindings/plain_call.hpp). Returns false and does
  // nothing if an array has to be converted or refused.
  bool apply(py::handle x, py::handle out) {
    const auto call = FastCall<T>::of(x, out, columns_, rows_);
    if (!call) return false;
    apply_plans(*plans_for(call->outer, 1), call->x, T(1), call->out, false);
    return true;
  }

 protected:
  // Adds a term; `before` and `behind` are the sizes of the modes that it leaves as they are.
  const Term<T>& add(const std::vector<py::object>& factors, std::vector<Index> before,
                     std::vector<Index> behind) {
    return terms_.emplace_back(factors, std::move(before), std::move(behind));
  }
  void set_size(Index columns, Index rows) {
    columns_ = columns;
    rows_ = rows;
  }

 private:
  using Plans = std::vector<KronPlan<T>>;  // one for each term

  std::shared_ptr<const Plans> plans_for(Index outer, Index inner) {
    return plans_.get(outer, inner, [&] {
      Plans plans;
      for (const Term<T>& term : terms_)
        plans.emplace_back(term.inputs, term.outputs, checked_product(term.before, outer),
                           checked_product(term.behind, inner), term.skipped);
      return plans;
    });
  }

  void apply_plans(const Plans& plans, const T* x, T alpha, T* y, bool accumulate) const {
    double multiply_adds = 0;
    for (const KronPlan<T>& plan : plans) multiply_adds += plan.multiply_adds();
    std::optional<py::gil_scoped_release> unlocked;
    if (multiply_adds >= kMinReleaseWork) unlocked.emplace();
    for (std::size_t k = 0; k < plans.size(); ++k)
      plans[k].run(terms_[k].packed, x, alpha, y, accumulate || k > 0);
  }

  std::deque<Term<T>> terms_;  // a deque does not move its elements: packed factors are not movable
  Index columns_ = 0, rows_ = 0;
  PlanCache<Plans> plans_;
};

// I (x) A_1 (x) ... (x) A_d (x) I: one term. The first and the last factor are matrices.
template <class T>
class Product : public Terms<T> {
 public:
  Product(const std::vector<py::object>& factors, Index before, Index behind) {
    const Term<T>& whole = this->add(factors, {before}, {behind});
    this->set_size(size_of({before, size_of(whole.inputs), behind}),
                   size_of({before, size_of(whole.outputs), behind}));
  }
};

// A_1 (x) I (x) ... (x) I + ... + I (x) ... (x) I (x) A_d: a Kronecker sum, one term for each mode.
template <class T>
class Sum : public Terms<T> {
 public:
  explicit Sum(const std::vector<py::array>& factors) {
    if (factors.empty()) fail("factors", "at least one");
    std::vector<Index> sizes;
    for (const py::array& factor : factors) {
      if (factor.ndim() != 2 || factor.shape(0) != factor.shape(1)) fail("a factor", "square");
      sizes.push_back(factor.shape(0));
    }
    for (auto mode = sizes.begin(); mode != sizes.end(); ++mode)
      this->add({factors[mode - sizes.begin()]}, {sizes.begin(), mode}, {mode + 1, sizes.end()});
    this->set_size(size_of(sizes), size_of(sizes));
  }
};

template <class Bound, class Init, class... Arguments>
void register_type(py::module_& module, const char* name, Init init, Arguments... arguments) {
  py::class_<Bound>(module, name)
      .def(init, arguments...)
      .def("run", &Bound::run, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def("apply", &Bound::apply, py::arg("x"), py::arg("out"));
}

template <class T>
void register_product_of(py::module_& module, const char* name) {
  register_type<Product<T>>(module, name,
                            py::init<const std::vector<py::object>&, Index, Index>(),
                            py::arg("factors"), py::arg("before") = 1, py::arg("behind") = 1);
}

template <class T>
void register_sum_of(py::module_& module, const char* name) {
  register_type<Sum<T>>(module, name, py::init<const std::vector<py::array>&>(),
                        py::arg("factors"));
}

}  // namespace

void register_product(py::module_& module) {
  register_product_of<float>(module, "KronProductFloat32");
  register_product_of<double>(module, "KronProductFloat64");
  register_product_of<Complex<float>>(module, "KronProductComplex64");
  register_product_of<Complex<double>>(module, "KronProductComplex128");
  register_sum_of<float>(module, "KronSumFloat32");
  register_sum_of<double>(module, "KronSumFloat64");
  register_sum_of<Complex<float>>(module, "KronSumComplex64");
  register_sum_of<Complex<double>>(module, "KronSumComplex128");
}

}  // namespace batchkron
