#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings/register.hpp"
#include "engine/dispatch.hpp"
#include "engine/processors.hpp"
#include "engine/threads.hpp"

namespace batchkron {
namespace {

// Warns, in whichever thread of Python's, that the system refuses to start more threads.
void warn_of_refusal(int threads) {
  const pybind11::gil_scoped_acquire locked;
  const std::string text =
      "the system refuses to start more threads; the kernels take " + std::to_string(threads);
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
}

// The ranges that a team takes of each of some passes: (begin, end, thread).
std::vector<std::vector<std::tuple<Index, Index, int>>> ranges_of_team(Index count, Index grain,
                                                                       int passes) {
  using Ranges = std::vector<std::tuple<Index, Index, int>>;
  ThreadGain gain;
  const TeamScope scope(1e9, gain);
  std::vector<Ranges> all;
  for (int pass = 0; pass < passes; ++pass) {
    const ThreadTeam team(1e9, gain);
    std::vector<Ranges> own(std::size_t(team.threads()));
    team.run(count, grain, [&](Index begin, Index end, int thread) {
      own[std::size_t(thread)].emplace_back(begin, end, thread);
    });
    all.emplace_back();
    for (const Ranges& ranges : own)
      all.back().insert(all.back().end(), ranges.begin(), ranges.end());
  }
  return all;
}

}  // namespace

void register_runtime(pybind11::module_& module) {
  module.def("get_num_threads", &num_threads);
  module.def("num_processors", &num_processors);
  module.def("set_num_threads", &set_num_threads);
  module.def("set_thread_limit", &set_thread_limit);
  module.def("instruction_set", [] { return kernels().name; });
  module.def("missing_instruction_set", &missing_instruction_set);
  set_refusal_handler(&warn_of_refusal);
  // for tests and measurements
  module.def("last_team_size", &last_team_size);
  module.def("ranges_of_team", &ranges_of_team, pybind11::arg("count"), pybind11::arg("grain"),
             pybind11::arg("passes") = 1, pybind11::call_guard<pybind11::gil_scoped_release>());
  // for tests: what it chooses is otherwise seen in times only
  pybind11::class_<ThreadGain>(module, "ThreadGain")
      .def(pybind11::init<>())
      .def("choose", &ThreadGain::choose, pybind11::arg("available"), pybind11::arg("now"))
      .def("record", &ThreadGain::record, pybind11::arg("threads"), pybind11::arg("work"),
           pybind11::arg("begin"), pybind11::arg("end"));
}

}  // namespace batchkron
