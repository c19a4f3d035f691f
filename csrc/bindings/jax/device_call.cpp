// XLA's calls on a device that need Python only where their layout is new: it makes a sequence of
// launches, which is kept and called with the addresses of XLA's buffers.
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/device_launch.hpp"
#include "bindings/jax/call.hpp"
#include "bindings/register.hpp"

namespace batchkron {
namespace {

namespace py = pybind11;

// Python's function that makes sequences; null until it is set.
py::object& plan_function() {
  static py::object& function = *new py::object;  // never destroyed: Python may have ended before
  return function;
}

// An address of a sequence: of an operand (its number), of the workspace, none, or of result n
// (number kFirstResult - n); the bytes from system to system; and those before the first one.
struct Source {
  Index number;
  std::size_t step, offset;
};
constexpr Index kWorkspace = -1, kNone = -2, kFirstResult = -3;

// The driver's cuCtxGetCurrent and cuCtxSetCurrent, and the context that kernels were loaded in; all
// null where no context has to be made current.
struct Context {
  int (*get_current)(void**);
  int (*set_current)(void*);
  void* own;
};

struct Calls {
  const DeviceSequence* sequence;  // called for each system
  std::size_t workspace;           // bytes
  Index systems;
  std::vector<Source> sources;
  Context context;
  bool kept;  // also when plans are forgotten
};

// Never destroyed: calls may still run at the end.
std::mutex& changing() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::unordered_map<std::string, std::shared_ptr<const Calls>>& known() {
  static auto& calls = *new std::unordered_map<std::string, std::shared_ptr<const Calls>>;
  return calls;
}

// Makes a context the thread's current one, and later the one that was.
class InContext {
 public:
  explicit InContext(const Context& context) : context_(context) {
    if (!context_.own) return;
    check(context_.get_current(&before_));
    changed_ = before_ != context_.own;
    if (changed_) check(context_.set_current(context_.own));
  }
  ~InContext() {
    if (changed_) context_.set_current(before_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  static void check(int status) {
    if (status)
      throw std::runtime_error("a CUDA context failed with status " + std::to_string(status));
  }

  Context context_;
  void* before_ = nullptr;
  bool changed_ = false;
};

// Memory of the device for one call.
class Workspace {
 public:
  Workspace(const XlaCall& call, std::size_t bytes)
      : call_(call), bytes_(bytes), data_(bytes ? call.allocate(bytes) : nullptr) {}
  ~Workspace() {
    if (data_) call_.free(bytes_, data_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Address address() const { return reinterpret_cast<Address>(data_); }

 private:
  const XlaCall& call_;
  std::size_t bytes_;
  void* data_;
};

void append(std::string& key, Index number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// What a call asks for beside its operands: a function, its parameter, the numbers of the results
// that are wanted of it, with spaces between, and which plans it was compiled with.
struct Asked {
  explicit Asked(const XlaCall& call)
      : function(call.text("function")),
        wanted(call.text("wanted")),
        plans(call.text("plans")),
        transpose(call.flag("transpose")),
        device(call.device()) {}

  std::string function, wanted, plans;
  bool transpose;
  Index device;
};

// What is asked, and the dtypes and shapes that a call is for.
std::string key_of(const XlaCall& call, const Asked& asked) {
  std::string key = asked.function + (asked.transpose ? " T " : " N ") + asked.wanted + ';' +
                    asked.plans + ';';
  append(key, asked.device);
  for (Index k = 0; k < call.arguments(); ++k) {
    const xla::Buffer& buffer = call.argument(k);
    append(key, buffer.dtype);
    append(key, buffer.axes);
    for (Index axis = 0; axis < buffer.axes; ++axis) append(key, buffer.sizes[axis]);
  }
  return key;
}

// Calls function(name, transpose, wanted, device, [(dtype, shape), ...], plans) of Python, which
// returns (sequence, workspace, systems, [(number, step, offset), ...], (cuCtxGetCurrent,
// cuCtxSetCurrent, context)).
std::shared_ptr<const Calls> planned(const XlaCall& call, const Asked& asked) {
  const py::gil_scoped_acquire locked;
  try {
    py::list operands;
    for (Index k = 0; k < call.arguments(); ++k) {
      const xla::Buffer& buffer = call.argument(k);
      py::tuple shape(buffer.axes);
      for (Index axis = 0; axis < buffer.axes; ++axis)
        shape[std::size_t(axis)] = buffer.sizes[axis];
      operands.append(py::make_tuple(dtype_name(buffer.dtype), shape));
    }
    py::tuple made = plan_function()(asked.function, asked.transpose, asked.wanted, asked.device,
                                     operands, asked.plans);
    const py::tuple context = made[4];
    Calls found{&made[0].cast<const DeviceSequence&>(),
                made[1].cast<std::size_t>(),
                made[2].cast<Index>(),
                {},
                {reinterpret_cast<int (*)(void**)>(context[0].cast<Address>()),
                 reinterpret_cast<int (*)(void*)>(context[1].cast<Address>()),
                 reinterpret_cast<void*>(context[2].cast<Address>())},
                !asked.plans.empty()};
    for (const py::handle& one : made[3]) {
      const auto source = py::reinterpret_borrow<py::tuple>(one);
      const Index number = source[0].cast<Index>();
      if (number >= call.arguments()) call.broken("operand");
      if (kFirstResult - number >= call.results()) call.broken("result");
      found.sources.push_back({number, source[1].cast<std::size_t>(), source[2].cast<std::size_t>()});
    }
    if (found.sources.size() != found.sequence->addresses()) call.broken("number of addresses");
    py::object(made[0]).release();  // never freed: calls in other threads may still use it
    return std::make_shared<const Calls>(std::move(found));
  } catch (py::error_already_set& error) {
    const std::string text = error.what();  // whose memory is Python's, freed with the lock
    throw std::runtime_error(text);
  }
}

std::shared_ptr<const Calls> calls_for(const XlaCall& call) {
  const Asked asked(call);
  const std::string key = key_of(call, asked);
  {
    const std::lock_guard<std::mutex> locked(changing());
    const auto found = known().find(key);
    if (found != known().end()) return found->second;
  }
  auto made = planned(call, asked);  // without our lock: it waits for Python's
  const std::lock_guard<std::mutex> locked(changing());
  return known().emplace(key, std::move(made)).first->second;
}

Address first_of(const XlaCall& call, const Source& source, Address workspace) {
  if (source.number == kNone) return 0;
  if (source.number == kWorkspace) return workspace + source.offset;
  const xla::Buffer& buffer = source.number <= kFirstResult
                                  ? call.result(kFirstResult - source.number)
                                  : call.argument(source.number);
  return reinterpret_cast<Address>(buffer.data) + source.offset;
}

// Throws the error of a launch that failed, with the text of Python's.
[[noreturn]] void refuse(const DeviceSequence& sequence, int status) {
  const py::gil_scoped_acquire locked;
  std::string text = "a launch failed with CUDA's status " + std::to_string(status);
  try {
    sequence.refuse(status);
  } catch (py::error_already_set& error) {
    text = error.what();
  }
  throw std::runtime_error(text);
}

void launch(const XlaCall& call, const Calls& calls, Address workspace) {
  const Address stream = reinterpret_cast<Address>(call.stream());
  std::vector<Address> addresses;
  for (const Source& source : calls.sources)
    addresses.push_back(first_of(call, source, workspace));
  const InContext current(calls.context);
  for (Index system = 0; system < calls.systems; ++system) {
    if (const int status = calls.sequence->start(stream, addresses.data()))
      refuse(*calls.sequence, status);
    for (std::size_t k = 0; k < addresses.size(); ++k) addresses[k] += calls.sources[k].step;
  }
}

// Allocates the workspace, which graphs must not do.
void run(const XlaCall& call) {
  const auto calls = calls_for(call);
  const Workspace workspace(call, calls->workspace);
  launch(call, *calls, workspace.address());
}

// The workspace is the last result. Python plans and loads kernels before a run, because that must not
// happen while a graph is captured.
void run_in_graphs(const XlaCall& call) {
  const auto calls = calls_for(call);
  const xla::Buffer& memory = call.result(call.results() - 1);
  if (memory.dtype != xla::kUint8 || memory.axes != 1) call.broken("workspace");
  if (std::size_t(memory.sizes[0]) < calls->workspace)
    throw std::invalid_argument(
        "batchkron's kernels need " + std::to_string(calls->workspace) +
        " bytes of workspace, but the function was compiled with " +
        std::to_string(memory.sizes[0]) +
        ", on another machine or before plans changed; compile it again (jax.clear_caches())");
  if (call.executes()) launch(call, *calls, reinterpret_cast<Address>(memory.data));
}

// A function that was compiled with the workspace of its plans keeps them.
void forget() {
  const std::lock_guard<std::mutex> locked(changing());
  for (auto one = known().begin(); one != known().end();)
    one = one->second->kept ? std::next(one) : known().erase(one);
}

xla::Error* handle_planned_on_device(xla::CallFrame* frame) { return handle(frame, &run); }

xla::Error* handle_in_graphs(xla::CallFrame* frame) {
  return handle(frame, &run_in_graphs, xla::kCapturable, xla::kInitialize);
}

}  // namespace

void register_jax_device_call(py::module_& module) {
  module.attr("jax_captured_on_device") = capsule_of(&handle_in_graphs);
  module.attr("jax_planned_on_device") = capsule_of(&handle_planned_on_device);
  module.def("set_jax_planner", [](py::object function) { plan_function() = function; },
             py::arg("function"));
  module.def("forget_jax_plans", &forget);
}

}  // namespace batchkron
