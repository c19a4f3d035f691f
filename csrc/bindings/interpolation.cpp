// Interpolation on a grid.
#include <pybind11/stl.h>

#include <optional>

#include "bindings/plain_call.hpp"
#include "bindings/register.hpp"
#include "engine/interpolation/plan.hpp"

namespace batchkron {
namespace {

template <class T>
class BoundInterpolation {
 public:
  BoundInterpolation(const std::vector<Index>& sizes, const py::array& corners,
                     const py::array& weights, const py::array& places)
      : plan_(checked(sizes), sorted(sizes, corners, weights, places)) {}

  // grid (cells, cell_step) = W^T points, for 2^power vectors of it from `column`. `vectors` says
  // where those of the points begin: point p of vector r is points[p * point_step + vectors[r]].
  void scatter(const py::array& points, Index point_step, const std::vector<Index>& vectors,
               py::array grid, Index cell_step, Index column) const {
    const T* source = read<T>(points, points.size(), "points");
    T* target = write<T>(grid, grid.size(), "grid");
    const int power = check(points.size(), point_step, vectors, grid.size(), cell_step, column);
    std::optional<py::gil_scoped_release> unlocked;
    if (plan_.multiply_adds(Index(vectors.size())) >= kMinReleaseWork) unlocked.emplace();
    plan_.scatter({source, point_step, vectors.data(), target + column, cell_step, power});
  }

  // points = alpha W grid, or +=, for the same places.
  void gather(const py::array& grid, Index cell_step, Index column, py::array points,
              Index point_step, const std::vector<Index>& vectors, double alpha,
              bool accumulate) const {
    const T* source = read<T>(grid, grid.size(), "grid");
    T* target = write<T>(points, points.size(), "points");
    const int power = check(points.size(), point_step, vectors, grid.size(), cell_step, column);
    std::optional<py::gil_scoped_release> unlocked;
    if (plan_.multiply_adds(Index(vectors.size())) >= kMinReleaseWork) unlocked.emplace();
    plan_.gather({target, point_step, vectors.data(), source + column, cell_step, power}, T(alpha),
                 accumulate);
  }

 private:
  static const std::vector<Index>& checked(const std::vector<Index>& sizes) {
    if (sizes.empty() || sizes.size() > std::size_t(kMaxGridModes)) fail("sizes", "1 to 16 numbers");
    for (const Index size : sizes)
      if (size < kWeights) fail("a size", "at least 4");
    return sizes;
  }

  static SortedPoints<T> sorted(const std::vector<Index>& sizes, const py::array& corners,
                                const py::array& weights, const py::array& places) {
    const Index modes = Index(sizes.size()), count = places.size();
    return {read<T>(weights, count * modes * kWeights, "weights"),
            read<Index>(corners, count * modes, "corners"), read<Index>(places, count, "places"),
            count};
  }

  // Whether all that is accessed lies in the arrays; returns the power of the number of vectors.
  int check(Index points_size, Index point_step, const std::vector<Index>& vectors, Index grid_size,
            Index cell_step, Index column) const {
    int power = 0;
    while (power < kVectorPowers && std::size_t(1) << power != vectors.size()) ++power;
    if (power == kVectorPowers) fail("the number of vectors", "1, 2, 4, 8 or 16");
    if (point_step < 1 || cell_step < 1 || column < 0 || column + Index(vectors.size()) > cell_step)
      fail("a step", "positive and not less than the vectors");
    if (grid_size != checked_product({plan_.cells()}, cell_step))
      fail("grid", "of all cells and vectors");
    const Index reach = plan_.points() ? (plan_.points() - 1) * point_step : 0;
    for (const Index vector : vectors)
      if (vector < 0 || (plan_.points() > 0 && vector >= points_size - reach))
        fail("a vector", "in the array of points");
    return power;
  }

  InterpolationPlan<T> plan_;
};

template <class T>
void register_type(py::module_& module, const char* name) {
  using Bound = BoundInterpolation<T>;
  py::class_<Bound>(module, name)
      .def(py::init<const std::vector<Index>&, const py::array&, const py::array&,
                    const py::array&>(),
           py::arg("sizes"), py::arg("corners"), py::arg("weights"), py::arg("places"))
      .def("scatter", &Bound::scatter, py::arg("points"), py::arg("point_step"),
           py::arg("vectors"), py::arg("grid"), py::arg("cell_step"), py::arg("column"))
      .def("gather", &Bound::gather, py::arg("grid"), py::arg("cell_step"), py::arg("column"),
           py::arg("points"), py::arg("point_step"), py::arg("vectors"), py::arg("alpha"),
           py::arg("accumulate"));
}

}  // namespace

void register_interpolation(py::module_& module) {
  register_type<float>(module, "InterpolationFloat32");
  register_type<double>(module, "InterpolationFloat64");
}

}  // namespace batchkron
