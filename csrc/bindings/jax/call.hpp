// A call of XLA as handlers read it, and errors as XLA's. Handlers run without Python's lock, in any
// thread.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "bindings/jax/xla_ffi.hpp"
#include "engine/pack.hpp"
#include "simd/common/scalar.hpp"

namespace batchkron {

template <class T>
constexpr xla::DataType xla_type() {
  if constexpr (std::is_same_v<T, float>) return xla::kFloat32;
  if constexpr (std::is_same_v<T, double>) return xla::kFloat64;
  if constexpr (std::is_same_v<T, Complex<float>>) return xla::kComplex64;
  if constexpr (std::is_same_v<T, Complex<double>>) return xla::kComplex128;
  if constexpr (std::is_same_v<T, std::int32_t>) return xla::kInt32;
  if constexpr (std::is_same_v<T, Index>) return xla::kInt64;
}

// The Python code that binds the primitives validates shapes, with texts for users; the checks here
// make sure that no mistake in it can read or write outside of a buffer.
class XlaCall {
 public:
  explicit XlaCall(const xla::CallFrame& frame) : frame_(frame) {}

  bool executes() const { return frame_.stage == xla::kExecute; }
  Index arguments() const { return frame_.arguments.count; }
  const xla::Buffer& argument(Index k) const { return buffer(frame_.arguments, k); }
  Index results() const { return frame_.results.count; }
  const xla::Buffer& result(Index k) const { return buffer(frame_.results, k); }

  bool flag(const char* name) const {
    const auto& scalar = *static_cast<const xla::Scalar*>(attribute(name, xla::kScalar));
    if (scalar.dtype != xla::kBool) broken(name);
    return *static_cast<const bool*>(scalar.value);
  }
  std::string text(const char* name) const {
    const auto& text = *static_cast<const xla::Text*>(attribute(name, xla::kString));
    return {text.first, text.length};
  }

  // On a device: the handle of XLA's stream, and the number of the device.
  const void* stream() const {
    xla::GetStream asked{sizeof(xla::GetStream), nullptr, frame_.context, nullptr};
    if (failed(frame_.functions->get_stream(&asked))) broken("call without a stream");
    return asked.stream;
  }
  Index device() const {
    xla::GetDevice asked{sizeof(xla::GetDevice), nullptr, frame_.context, 0};
    if (failed(frame_.functions->get_device(&asked))) broken("call without a device");
    return asked.number;
  }

  // Memory of the device for work on the call's stream; it may be freed when that is queued.
  void* allocate(std::size_t bytes) const {
    constexpr std::size_t alignment = 16;  // XLA refuses more, and aligns to more
    xla::AllocateMemory asked{sizeof(xla::AllocateMemory), nullptr,   frame_.context, bytes,
                              alignment,                   nullptr};
    if (failed(frame_.functions->allocate(&asked)) || !asked.data) throw std::bad_alloc();
    return asked.data;
  }
  void free(std::size_t bytes, void* data) const {
    xla::FreeMemory asked{sizeof(xla::FreeMemory), nullptr, frame_.context, bytes, data};
    failed(frame_.functions->free(&asked));
  }

  [[noreturn]] static void broken(const std::string& what) {
    throw std::logic_error("internal error of batchkron: unexpected " + what);
  }

 private:
  static const xla::Buffer& buffer(const xla::Values& values, Index k) {
    if (k < 0 || k >= values.count || values.kinds[k] != xla::kBuffer) broken("number of buffers");
    return *static_cast<const xla::Buffer*>(values.values[k]);
  }

  const void* attribute(const std::string& name, int kind) const {
    const xla::Attributes& all = frame_.attributes;
    for (Index k = 0; k < all.count; ++k)
      if (name == std::string(all.names[k]->first, all.names[k]->length) && all.kinds[k] == kind)
        return all.values[k];
    broken("attributes, without " + name);
  }

  // Whether XLA returned an error, which is then deleted.
  bool failed(xla::Error* error) const {
    if (!error) return false;
    xla::DeleteError asked{sizeof(xla::DeleteError), nullptr, error};
    frame_.functions->delete_error(&asked);
    return true;
  }

  const xla::CallFrame& frame_;
};

inline const char* dtype_name(xla::DataType dtype) {
  switch (dtype) {
    case xla::kBool: return "bool";
    case xla::kInt32: return "int32";
    case xla::kInt64: return "int64";
    case xla::kUint8: return "uint8";
    case xla::kFloat16: return "float16";
    case xla::kBfloat16: return "bfloat16";
    case xla::kFloat32: return "float32";
    case xla::kFloat64: return "float64";
    case xla::kComplex64: return "complex64";
    case xla::kComplex128: return "complex128";
  }
  XlaCall::broken("dtype");
}

// The elements of a buffer of T with the expected sizes.
template <class T>
T* elements(const xla::Buffer& buffer, std::initializer_list<Index> sizes) {
  if (buffer.dtype != xla_type<T>()) XlaCall::broken("dtype of a buffer");
  if (buffer.axes != Index(sizes.size())) XlaCall::broken("number of axes");
  Index axis = 0;
  for (const Index size : sizes)
    if (buffer.sizes[axis++] != size) XlaCall::broken("shape of a buffer");
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % alignof(T)) XlaCall::broken("address");
  return static_cast<T*>(buffer.data);
}

// Returns function(T{}), where T is the C++ type of the buffer's elements.
template <class Function>
auto with_dtype(const xla::Buffer& buffer, Function function) {
  switch (buffer.dtype) {
    case xla::kFloat32: return function(float{});
    case xla::kFloat64: return function(double{});
    case xla::kComplex64: return function(Complex<float>{});
    case xla::kComplex128: return function(Complex<double>{});
    default: XlaCall::broken("dtype");
  }
}

inline xla::Error* xla_error(const xla::CallFrame& frame, xla::ErrorCode code, const char* text) {
  xla::NewError error{sizeof(xla::NewError), nullptr, text, code};
  return frame.functions->new_error(&error);
}

// Answers XLA's question for the version that a handler is written for, and its traits. XLA refuses to
// register it if the version is another one than its own.
inline bool answers_metadata(const xla::CallFrame& frame, std::uint32_t traits) {
  if (!frame.extensions || frame.extensions->kind != xla::kMetadata) return false;
  xla::Metadata& asked = *reinterpret_cast<xla::MetadataExtension*>(frame.extensions)->metadata;
  asked.version.major = xla::kMajorVersion;
  asked.version.minor = xla::kMinorVersion;
  asked.traits = traits;
  if (asked.bytes >= offsetof(xla::Metadata, state_type) + sizeof(asked.state_type))
    asked.state_type = 0;
  return true;
}

// Whether XLA's structures have the fields that handlers read.
inline bool fits(const xla::CallFrame& frame) {
  return frame.bytes >= sizeof(xla::CallFrame) &&
         frame.functions->bytes >= sizeof(xla::Functions) &&
         frame.functions->version.major == xla::kMajorVersion &&
         frame.functions->version.minor >= xla::kMinorVersion;
}

// A handler that calls body(XlaCall) in the stages from `first` on.
template <class Body>
xla::Error* handle(xla::CallFrame* frame, Body body, std::uint32_t traits = 0,
                   xla::Stage first = xla::kExecute) {
  if (answers_metadata(*frame, traits)) return nullptr;
  if (!fits(*frame)) {
    const xla::Version& version = frame->functions->version;
    const std::string text =
        "batchkron was built for version 0.3 of XLA's foreign functions and later versions 0.x, but "
        "this jaxlib has " + std::to_string(version.major) + "." + std::to_string(version.minor) +
        "; install a jaxlib that batchkron's extra 'jax' names";
    return xla_error(*frame, xla::kFailedPrecondition, text.c_str());
  }
  if (frame->stage < first) return nullptr;
  try {
    body(XlaCall(*frame));
    return nullptr;
  } catch (const std::out_of_range& error) {
    return xla_error(*frame, xla::kOutOfRange, error.what());
  } catch (const std::invalid_argument& error) {
    return xla_error(*frame, xla::kInvalidArgument, error.what());
  } catch (const std::bad_alloc&) {
    return xla_error(*frame, xla::kResourceExhausted, "batchkron: not enough memory");
  } catch (const std::exception& error) {
    return xla_error(*frame, xla::kInternal, error.what());
  }
}

// A handler for jax.ffi.register_ffi_target.
inline pybind11::capsule capsule_of(xla::Handler* handler) {
  return pybind11::capsule(reinterpret_cast<void*>(handler));
}

}  // namespace batchkron
