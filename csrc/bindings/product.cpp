// A Kronecker product with its factors packed once, and the plans it has needed so far.
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/kron_plan.hpp"

namespace batchkron {
namespace {

constexpr std::size_t kMostPlans = 64;
constexpr double kHoldsLock = 1e5;  // multiply-adds that take no longer than a switch of threads

// The fields that a plain call needs of an array, without NumPy's functions.
template <class T>
class PlainArray {
 public:
  explicit PlainArray(py::handle object) : proxy_(py::detail::array_proxy(object.ptr())) {}

  // Exactly a NumPy array of T, contiguous, aligned and (if asked for) writeable.
  static bool is_plain(py::handle object, bool writeable) {
    static PyObject* const dtype = py::dtype::of<T>().release().ptr();
    constexpr int readable = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ |
                             py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    const int wanted =
        writeable ? readable | py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : readable;
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto* proxy = py::detail::array_proxy(object.ptr());
    return proxy->descr == dtype && (proxy->flags & wanted) == wanted && proxy->nd >= 1;
  }

  T* data() const { return reinterpret_cast<T*>(proxy_->data); }
  int dimensions() const { return proxy_->nd; }
  Index last() const { return proxy_->dimensions[proxy_->nd - 1]; }
  // The product of all dimensions but the last, or nothing where those of `other` differ.
  std::optional<Index> leading(const PlainArray& other) const {
    Index product = 1;
    for (int axis = 0; axis + 1 < proxy_->nd; ++axis) {
      if (proxy_->dimensions[axis] != other.proxy_->dimensions[axis]) return {};
      product *= proxy_->dimensions[axis];
    }
    return product;
  }

 private:
  const py::detail::PyArray_Proxy* proxy_;
};

template <class T>
class Product {
 public:
  explicit Product(const std::vector<py::array>& factors) {
    std::vector<FactorView<T>> views;
    for (const py::array& factor : factors) {
      if (factor.ndim() != 2) fail("a factor", "two-dimensional");
      views.push_back(factor_view<T>(factor, factor.shape(0), factor.shape(1)));
      outputs_.push_back(factor.shape(0));
      inputs_.push_back(factor.shape(1));
    }
    packed_.fill(merge_factors(inputs_, outputs_), views.data());
  }

  // x is (outer, N, inner), y is (outer, M, inner).
  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) {
    const std::shared_ptr<Plan> plan = plan_for(outer, inner);
    const T* source = read<T>(x, plan->input_elements(), "x");
    T* target = write<T>(y, plan->output_elements(), "y");
    apply_plan(*plan, source, scalar<T>(alpha), target, accumulate);
  }

  // out[..., :] = A x[..., :] where both are plain arrays that fit and do not overlap; false, and
  // nothing done, where anything has to be converted or refused.
  bool apply(py::handle x, py::handle out) {
    if (!PlainArray<T>::is_plain(x, false) || !PlainArray<T>::is_plain(out, true)) return false;
    const PlainArray<T> source(x), target(out);
    if (source.dimensions() != target.dimensions()) return false;
    const std::optional<Index> outer = source.leading(target);
    if (!outer) return false;
    const std::shared_ptr<Plan> plan = plan_for(*outer, 1);
    const Index read = plan->input_elements(), written = plan->output_elements();
    if (source.last() * *outer != read || target.last() * *outer != written) return false;
    if (*outer == 0) return false;
    if (source.data() < target.data() + written && target.data() < source.data() + read)
      return false;
    apply_plan(*plan, source.data(), T(1), target.data(), false);
    return true;
  }

 private:
  using Plan = KronPlan<T>;

  struct Entry {
    Index outer, inner;
    std::shared_ptr<Plan> plan;
  };

  // Called with the interpreter's lock; another thread may still run a plan that is dropped here.
  std::shared_ptr<Plan> plan_for(Index outer, Index inner) {
    for (const Entry& entry : plans_)
      if (entry.outer == outer && entry.inner == inner) return entry.plan;
    if (plans_.size() >= kMostPlans) plans_.clear();
    plans_.push_back({outer, inner, std::make_shared<Plan>(inputs_, outputs_, outer, inner)});
    return plans_.back().plan;
  }

  void apply_plan(const Plan& plan, const T* x, T alpha, T* y, bool accumulate) const {
    if (plan.multiply_adds() < kHoldsLock) return plan.run(packed_, x, alpha, y, accumulate);
    py::gil_scoped_release unlocked;
    plan.run(packed_, x, alpha, y, accumulate);
  }

  std::vector<Index> inputs_, outputs_;
  PackedFactors<T> packed_;
  std::vector<Entry> plans_;
};

template <class T>
void register_type(py::module_& module, const char* name) {
  py::class_<Product<T>>(module, name)
      .def(py::init<const std::vector<py::array>&>(), py::arg("factors"))
      .def("run", &Product<T>::run, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def("apply", &Product<T>::apply, py::arg("x"), py::arg("out"));
}

}  // namespace

void register_product(py::module_& module) {
  register_type<float>(module, "KronProductFloat32");
  register_type<double>(module, "KronProductFloat64");
  register_type<Complex<float>>(module, "KronProductComplex64");
  register_type<Complex<double>>(module, "KronProductComplex128");
}

}  // namespace batchkron
