// Launches of device kernels by the CUDA driver's cuLaunchKernelEx, and sequences of such calls. Its
// address comes from Python, because this module is built and imported without CUDA.
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

// Work that is queued on a stream with one struct of arguments: a call fills in the struct's first
// fields, which are addresses, and its last ones, which are scalars; what is between is the same in
// all calls. Several threads may use one object at once.
class DeviceCall {
 public:
  static constexpr std::size_t max_argument_bytes = 4096;  // CUDA's limit for a kernel's parameters

  // check: called with the status of a call that failed, and raises the error. arguments: the
  // struct's bytes; addresses: how many it begins with; scalars: the offset in bytes where those
  // begin.
  DeviceCall(pybind11::function check, const pybind11::bytes& arguments, std::size_t addresses,
             std::size_t scalars);
  virtual ~DeviceCall() = default;
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

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

  // Returns the status, 0 where all is well. It needs no lock of Python.
  virtual int start(Address stream, void* arguments) const = 0;

  // Raises the error of a status that is not 0.
  void refuse(int status) const;

 private:
  void start_or_refuse(Address stream, void* arguments) const;

  pybind11::function check_;
  std::string arguments_;
  std::size_t addresses_, scalars_;
};

// A kernel with its launch configuration. The kernel's one parameter is the struct of arguments.
class DeviceLaunch : public DeviceCall {
 public:
  // launch: address of cuLaunchKernelEx; kernel: its CUfunction. early: sets programmatic stream
  // serialization. The others are those of DeviceCall.
  DeviceLaunch(Address launch, pybind11::function check, Address kernel, unsigned grid_x,
               unsigned grid_y, unsigned grid_z, unsigned threads, unsigned shared_bytes, bool early,
               const pybind11::bytes& arguments, std::size_t addresses, std::size_t scalars);

  int start(Address stream, void* arguments) const override;

 private:
  LaunchKernel launch_;
  void* kernel_;
  LaunchConfiguration configuration_;
};

// Calls one after the other, with some of the addresses that are passed each. Several threads may call
// one sequence at once.
class DeviceSequence {
 public:
  // To the byte `at` of a call's arguments goes address number `number`, plus `offset` bytes.
  struct Place {
    std::size_t at, number, offset;
  };
  using Places = std::vector<std::array<std::size_t, 3>>;

  // calls: instances of DeviceCall, with as many places each; addresses: how many are passed.
  DeviceSequence(const pybind11::list& calls, const std::vector<Places>& places,
                 std::size_t addresses);

  // The scalars are those of the last call.
  void run(Address stream, const pybind11::tuple& addresses, const pybind11::bytes& scalars) const;

  std::size_t addresses() const { return addresses_; }

  // Raises the error of a status that `start` returned.
  void refuse(int status) const { steps_.front().call->refuse(status); }

  // Returns the status, 0 where all is well. It needs no lock of Python.
  int start(Address stream, const Address* addresses) const {
    const Step* failed = nullptr;
    return start(stream, addresses, nullptr, 0, failed);
  }

 private:
  struct Step {
    const DeviceCall* call;
    std::vector<Place> places;
  };

  int start(Address stream, const Address* addresses, const char* scalars, std::size_t bytes,
            const Step*& failed) const;

  pybind11::list calls_;  // keeps them alive
  std::vector<Step> steps_;
  std::size_t addresses_;
};

}  // namespace batchkron
