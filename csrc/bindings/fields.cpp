// Coefficients that follow the state.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/fields/plan.hpp"
#include "engine/fields/program.hpp"

namespace batchkron {
namespace {

std::vector<double> numbers_of(const py::array& array, Index elements, const char* what) {
  const double* source = read<double>(array, elements, what);
  return {source, source + elements};
}

// See FieldPlanParts for all arrays.
class BoundFieldPlan {
 public:
  BoundFieldPlan(Index unknowns, const Indices& starts, const Indices& columns,
                 const py::array& weights, const py::array& mix, const py::array& kept,
                 const std::vector<std::pair<Index, py::array>>& levels, const py::array& offsets,
                 const py::array& known, const Indices& code, const py::array& projection,
                 const Indices& fields, const py::array& signs, const py::array& lowest,
                 const py::array& outer, const py::array& coarsen, const py::array& upward)
      : plan_(checked(unknowns, starts, columns, weights, mix, kept, levels, offsets, known, code,
                      projection, fields, signs, lowest, outer, coarsen, upward)) {}

  // False if a divisor is not positive; then nothing is written.
  bool write(const py::array& u, py::array heap, py::array ancestors) const {
    const FieldPlanParts& p = plan_.parts();
    const Index cells = Index(1) << p.level, parts = Index(p.fields.size()), q = p.n * p.n;
    const double* state = read<double>(u, p.unknowns, "u");
    double* first = batchkron::write<double>(heap, cells * parts * 4 * q, "heap");
    double* second =
        batchkron::write<double>(ancestors, (cells - 1) * parts * q * p.level, "ancestors");
    py::gil_scoped_release unlocked;
    return plan_.write(state, first, second);
  }

 private:
  static FieldPlanParts checked(Index unknowns, const Indices& starts, const Indices& columns,
                                const py::array& weights, const py::array& mix,
                                const py::array& kept,
                                const std::vector<std::pair<Index, py::array>>& levels,
                                const py::array& offsets, const py::array& known,
                                const Indices& code, const py::array& projection,
                                const Indices& fields, const py::array& signs,
                                const py::array& lowest, const py::array& outer,
                                const py::array& coarsen, const py::array& upward) {
    if (mix.ndim() != 2 || kept.ndim() != 2 || known.ndim() != 2 || projection.ndim() != 2 ||
        outer.ndim() != 2 || upward.ndim() != 3 || levels.empty() || starts.size() < 1)
      fail("an array", "of other shape");
    FieldPlanParts p;
    p.unknowns = unknowns, p.channels = mix.shape(0), p.moments = mix.shape(1);
    p.width = kept.shape(1), p.points = known.shape(1);
    if (p.points < 1) fail("known", "not empty");
    p.starts = copy_of(starts), p.columns = copy_of(columns);
    check_sums(p);
    p.weights = numbers_of(weights, columns.size(), "weights");
    p.mix = numbers_of(mix, mix.size(), "mix");
    p.kept = numbers_of(kept, p.channels * p.width, "kept");
    p.offsets = numbers_of(offsets, p.channels * p.points, "offsets");
    p.known = numbers_of(known, known.size(), "known");
    add_levels(p, levels);
    p.code = copy_of(code), p.size = projection.shape(0);
    p.projection = numbers_of(projection, p.size * p.size, "projection");
    const Index rows = check_program(p, known.shape(0));
    p.n = upward.shape(1), p.points_of_cell = outer.shape(0), p.level = 0;
    const Index q = p.n * p.n, parts = fields.size();
    if (p.points_of_cell < 1) fail("outer", "not empty");
    while ((p.points_of_cell << p.level) < p.points) ++p.level;
    if ((p.points_of_cell << p.level) != p.points || outer.shape(1) != q)
      fail("shapes", "those of blocks");
    p.fields = copy_of(fields);
    for (const std::int64_t row : p.fields)
      if (row < 0 || row >= rows) fail("fields", "in range");
    p.signs = numbers_of(signs, parts, "signs");
    p.lowest = numbers_of(lowest, parts, "lowest");
    p.outer = numbers_of(outer, p.points_of_cell * q, "outer");
    p.coarsen = numbers_of(coarsen, 8 * q * q, "coarsen");
    p.upward = numbers_of(upward, ((Index(1) << p.level) - 1) * q * p.level, "upward");
    return p;
  }

  static void check_sums(const FieldPlanParts& p) {
    if (Index(p.starts.size()) != p.moments * p.width + 1 || p.starts.front() != 0 ||
        p.starts.back() != std::int64_t(p.columns.size()) ||
        !std::is_sorted(p.starts.begin(), p.starts.end()))
      fail("starts", "those of rows");
    for (const std::int64_t column : p.columns)
      if (column < 0 || column >= p.unknowns) fail("columns", "in range");
  }

  static void add_levels(FieldPlanParts& p, const std::vector<std::pair<Index, py::array>>& levels) {
    Index given = 0, taken = 0;  // of each channel: what a group has given to the next, has taken
    for (const auto& [number, matrices] : levels) {
      if (matrices.ndim() != 3 || number < 1 || given % number != 0)
        fail("levels", "those of one map");
      const Index inputs = matrices.shape(1), outputs = matrices.shape(2);
      if (matrices.shape(0) != p.channels || number * inputs < given)
        fail("levels", "those of one map");
      taken += number * inputs - given;
      given = number * outputs;
      p.levels.push_back({number, inputs, outputs, numbers_of(matrices, matrices.size(), "levels")});
    }
    if (taken != p.width || given != p.points) fail("levels", "those of one map");
  }

  // Returns the number of rows.
  static Index check_program(const FieldPlanParts& p, Index known) {
    const Index first = p.channels + known, steps = Index(p.code.size()) / 3;
    if (Index(p.code.size()) != 3 * steps) fail("code", "of three numbers for each step");
    for (Index s = 0; s < steps; ++s) {
      const std::int64_t* step = p.code.data() + 3 * s;
      if (step[0] < FieldProgram::add || step[0] > FieldProgram::project) fail("code", "known");
      if (std::min(step[1], step[2]) < 0 || std::max(step[1], step[2]) >= first + s)
        fail("code", "of rows before the step's");
      if (step[0] == FieldProgram::project && (p.size < 1 || p.points % p.size != 0))
        fail("projection", "of a divisor of the points");
    }
    return first + steps;
  }

  FieldPlan plan_;
};

}  // namespace

void register_fields(py::module_& module) {
  using Plan = BoundFieldPlan;
  py::class_<Plan>(module, "FieldPlan")
      .def(py::init<Index, const Indices&, const Indices&, const py::array&, const py::array&,
                    const py::array&, const std::vector<std::pair<Index, py::array>>&,
                    const py::array&, const py::array&, const Indices&, const py::array&,
                    const Indices&, const py::array&, const py::array&, const py::array&,
                    const py::array&, const py::array&>(),
           py::arg("unknowns"), py::arg("starts"), py::arg("columns"), py::arg("weights"),
           py::arg("mix"), py::arg("kept"), py::arg("levels"), py::arg("offsets"),
           py::arg("known"), py::arg("code"), py::arg("projection"), py::arg("fields"),
           py::arg("signs"), py::arg("lowest"), py::arg("outer"), py::arg("coarsen"),
           py::arg("upward"))
      .def("write", &Plan::write, py::arg("u"), py::arg("heap"), py::arg("ancestors"));
}

}  // namespace batchkron
