// Launches of device kernels by the CUDA driver's cuLaunchKernelEx. Its address comes from Python,
// because this module is built and imported without CUDA.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace batchkron {

using Address = std::uintptr_t;

// CUlaunchAttribute and CUlaunchConfig of cuda.h, with the driver's layout.
struct LaunchAttribute {
  int id;
  alignas(8) int value;
  char rest[60];
};
struct LaunchConfiguration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfiguration) == 56);
using LaunchKernel = int (*)(const LaunchConfiguration*, void* kernel, void** parameters,
                             void** extra);

// A kernel with its launch configuration. The kernel has one parameter, a struct: a call fills in
// its first fields, which are addresses, and its last ones, which are scalars; what is between is
// the same in all calls. Several threads may call one launch at once.
class DeviceLaunch {
 public:
  static constexpr std::size_t max_argument_bytes = 4096;  // CUDA's limit for a kernel's parameters

  // launch: address of cuLaunchKernelEx; kernel: its CUfunction. check: called with the status of a
  // launch that failed, and raises the error. early: sets programmatic stream serialization.
  // arguments: the struct's bytes; addresses: how many it begins with; scalars: the offset in bytes
  // where those begin.
  DeviceLaunch(Address launch, pybind11::function check, Address kernel, unsigned grid_x,
               unsigned grid_y, unsigned grid_z, unsigned threads, unsigned shared_bytes, bool early,
               const pybind11::bytes& arguments, std::size_t addresses, std::size_t scalars);

  void run(Address stream, const pybind11::tuple& addresses, const pybind11::bytes& scalars) const;

  // `arguments` is the address of a whole struct in the host's memory.
  void run_with(Address stream, Address arguments) const;

  const std::string& arguments() const { return arguments_; }

  // Throws where the bytes do not fit behind the offset of the scalars.
  void check_scalars(const pybind11::bytes& scalars) const;

  // Writes the arguments to `target`, with these scalars at their end.
  void write(char* target, const char* scalars, std::size_t bytes) const {
    std::memcpy(target, arguments_.data(), arguments_.size());
    if (bytes) std::memcpy(target + scalars_, scalars, bytes);
  }

  // Returns the driver's status, 0 where all is well. It needs no lock of Python.
  int start(Address stream, void* arguments) const;

  // Raises the error of a status that is not 0.
  void refuse(int status) const;

 private:
  void launch(Address stream, void* arguments) const;

  LaunchKernel launch_;
  pybind11::function check_;
  void* kernel_;
  LaunchConfiguration configuration_;
  std::string arguments_;
  std::size_t addresses_, scalars_;
};

// Launches one after the other, with some of the addresses that a call passes each. Several threads
// may call one sequence at once.
class DeviceSequence {
 public:
  // To the byte `at` of a kernel's arguments goes address number `number`, plus `offset` bytes.
  struct Place {
    std::size_t at, number, offset;
  };
  using Places = std::vector<std::array<std::size_t, 3>>;

  // launches: instances of DeviceLaunch, with as many places each; addresses: how many a call passes.
  DeviceSequence(const pybind11::list& launches, const std::vector<Places>& places,
                 std::size_t addresses);

  // The scalars are those of the last launch.
  void run(Address stream, const pybind11::tuple& addresses, const pybind11::bytes& scalars) const;

  std::size_t addresses() const { return addresses_; }

  // Raises the error of a status that `start` returned.
  void refuse(int status) const { steps_.front().launch->refuse(status); }

  // Returns the driver's status, 0 where all is well. It needs no lock of Python.
  int start(Address stream, const Address* addresses) const {
    const Step* failed = nullptr;
    return start(stream, addresses, nullptr, 0, failed);
  }

 private:
  struct Step {
    const DeviceLaunch* launch;
    std::vector<Place> places;
  };

  int start(Address stream, const Address* addresses, const char* scalars, std::size_t bytes,
            const Step*& failed) const;

  pybind11::list launches_;  // keeps them alive
  std::vector<Step> steps_;
  std::size_t addresses_;
};

}  // namespace batchkron
