// Tables of numbers for steps of time steppers, sums of vectors with them, and programs of passes.
#include <pybind11/stl.h>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/step_program.hpp"
#include "engine/steps.hpp"

namespace batchkron {
namespace {

// A pass keeps the arrays of Python alive whose addresses it has.
template <class T>
struct KeptSum final : Pass {
  std::vector<py::array> arrays;
  SumPass<T> sum;

  template <class... Arguments>
  KeptSum(std::vector<py::array> kept, Arguments&&... arguments)
      : arrays(std::move(kept)), sum(std::forward<Arguments>(arguments)...) {}
  void run() override { sum.run(); }
  double work() const override { return sum.work(); }
};

class BoundTable {
 public:
  BoundTable(Index steps, Index width, Index columns) : table_(std::make_shared<StepTable>()) {
    if (steps < 1 || width < 1 || columns < 1) fail("sizes", "positive");
    table_->width = width;
    table_->columns = columns;
    table_->rows.resize(std::size_t(checked_product({steps, width})));
    table_->results.resize(std::size_t(checked_product({steps, columns})));
    steps_ = steps;
  }

  void begin() { table_->step = 0; }
  Index step() const { return table_->step; }
  Index steps() const { return steps_; }

  void write(Index first, const py::array& rows) {
    const Index count = rows.ndim() == 2 ? rows.shape(0) : -1;
    if (count < 0 || first < 0 || first + count > steps_ || rows.shape(1) > table_->width)
      fail("rows", "those of steps");
    const double* from = batchkron::read<double>(rows, rows.size(), "rows");
    for (Index k = 0; k < count; ++k)
      std::copy_n(from + k * rows.shape(1), rows.shape(1),
                  table_->rows.begin() + (first + k) * table_->width);
  }

  std::shared_ptr<Pass> sum_pass(Index first, const std::vector<py::array>& vectors,
                                 const std::optional<py::array>& out, Index result, bool ends) {
    if (vectors.empty() || first < 0 || first + Index(vectors.size()) > table_->width)
      fail("vectors", "as many as numbers");
    if (result >= table_->columns) fail("result", "a column");
    if (!out && result < 0) fail("out", "given");
    std::vector<py::array> kept = vectors;
    if (out) kept.push_back(*out);
    const auto make = [&](auto zero) -> std::shared_ptr<Pass> {
      using T = decltype(zero);
      const Index size = vectors.front().size();
      T* const target = out ? write_to<T>(*out, size) : nullptr;
      std::vector<const T*> sources;
      for (const py::array& vector : vectors) {
        const T* source = read<T>(vector, size, "a vector");
        if (target && source != target && source < target + size && target < source + size)
          fail("out", "one of the vectors or apart from them");
        sources.push_back(source);
      }
      return std::make_shared<KeptSum<T>>(kept, table_, first, sources, target, size, result, ends);
    };
    if (py::isinstance<Array<double>>(vectors.front())) return make(double{});
    if (py::isinstance<Array<float>>(vectors.front())) return make(float{});
    fail("vectors", "float32 or float64");
  }

  py::array results(Index count) const {
    if (count < 0 || count > steps_) fail("a number of steps", "one of the table");
    Array<double> found({count, table_->columns});
    std::copy_n(table_->results.begin(), found.size(), found.mutable_data());
    return found;
  }

 private:
  template <class T>
  static T* write_to(py::array out, Index size) {
    return batchkron::write<T>(out, size, "out");
  }

  std::shared_ptr<StepTable> table_;
  Index steps_;
};

struct BoundProgram {
  std::shared_ptr<BoundTable> table;
  StepProgram program;

  void run(Index steps) {
    if (steps < 0 || table->step() + steps > table->steps()) fail("steps", "those of the table");
    py::gil_scoped_release unlocked;
    program.run(steps);
  }
};

}  // namespace

void register_step_program(py::module_& module) {
  py::class_<Pass, std::shared_ptr<Pass>>(module, "Pass").def("__call__", [](Pass& pass) {
    py::gil_scoped_release unlocked;
    pass.run();
  });
  py::class_<BoundTable, std::shared_ptr<BoundTable>>(module, "StepTable")
      .def(py::init<Index, Index, Index>(), py::arg("steps"), py::arg("width"), py::arg("columns"))
      .def("begin", &BoundTable::begin)
      .def("write", &BoundTable::write, py::arg("first"), py::arg("rows"))
      .def("sum_pass", &BoundTable::sum_pass, py::arg("first"), py::arg("vectors"), py::arg("out"),
           py::arg("result"), py::arg("ends"))
      .def("read", &BoundTable::results, py::arg("count"));
  py::class_<BoundProgram>(module, "StepProgram")
      .def(py::init([](std::shared_ptr<BoundTable> table, std::vector<std::shared_ptr<Pass>> passes) {
             return BoundProgram{std::move(table), StepProgram(std::move(passes))};
           }),
           py::arg("table"), py::arg("passes"))
      .def("run", &BoundProgram::run, py::arg("steps"));
}

}  // namespace batchkron
