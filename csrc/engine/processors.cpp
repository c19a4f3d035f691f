#include "engine/processors.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>

#include <string>
#endif

namespace batchkron {
namespace {

// The positive number that a variable of the environment begins with, as in OpenMP's "4" and "4,2";
// 0 if there is none.
int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return 0;
  char* end;
  errno = 0;
  const long number = std::strtol(text, &end, 10);
  while (std::isspace(static_cast<unsigned char>(*end))) ++end;
  if (end == text || (*end && *end != ',') || errno || number < 1) return 0;
  return int(std::min<long>(number, std::numeric_limits<int>::max()));
}

#ifdef __linux__
bool is_openmp_runtime(const std::string& path) {  // such as …/libgomp-24e2ab19.so.1
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.rfind("libgomp", 0) == 0 || name.rfind("libomp", 0) == 0 ||
         name.rfind("libiomp5", 0) == 0;
}

// The OpenMP runtimes in this process, which other libraries have brought.
std::vector<std::string> openmp_runtimes() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, std::size_t, void* paths) {
        if (is_openmp_runtime(loaded->dlpi_name))
          static_cast<std::vector<std::string>*>(paths)->push_back(loaded->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

void add_places(void* runtime, cpu_set_t& processors) {
  const auto count = reinterpret_cast<int (*)()>(dlsym(runtime, "omp_get_num_places"));
  const auto size = reinterpret_cast<int (*)(int)>(dlsym(runtime, "omp_get_place_num_procs"));
  const auto ids_of = reinterpret_cast<void (*)(int, int*)>(dlsym(runtime, "omp_get_place_proc_ids"));
  if (!count || !size || !ids_of) return;
  for (int place = 0; place < count(); ++place) {
    std::vector<int> ids(std::size_t(size(place)));
    ids_of(place, ids.data());
    for (const int id : ids)
      if (id >= 0 && id < CPU_SETSIZE) CPU_SET(std::size_t(id), &processors);
  }
}
#endif

}  // namespace

#ifdef __linux__
bool usable_processors(cpu_set_t& processors) {
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return false;
  if (std::getenv("OMP_PROC_BIND") || std::getenv("OMP_PLACES") || std::getenv("GOMP_CPU_AFFINITY"))
    for (const std::string& path : openmp_runtimes())
      if (void* runtime = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
        add_places(runtime, processors);
        dlclose(runtime);
      }
  return true;
}
#endif

int num_processors() {
#ifdef __linux__
  cpu_set_t processors;
  if (usable_processors(processors)) return CPU_COUNT(&processors);
#endif
  return std::max(1, int(std::thread::hardware_concurrency()));
}

int default_threads() {
  static const int count = [] {
    const int asked = number_of("OMP_NUM_THREADS"), limit = number_of("OMP_THREAD_LIMIT");
    const int wanted = asked ? asked : num_processors();
    return limit ? std::min(wanted, limit) : wanted;
  }();
  return count;
}

bool threads_are_set_by_user() { return number_of("OMP_NUM_THREADS") > 0; }

}  // namespace batchkron
