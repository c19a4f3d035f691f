// The part that handlers need of the C interface by which XLA calls foreign functions ("XLA FFI",
// version 0.3; jaxlib ships its full declaration, see jax.ffi.include_dir()). Fields have XLA's order
// and types, and names of our own; fields behind the last one that is needed are left out. A test
// compares offsets, sizes and constants with the installed jaxlib's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace batchkron::xla {

constexpr int kMajorVersion = 0;  // raised where fields move
constexpr int kMinorVersion = 3;  // raised where fields are added behind, which does no harm

// The first fields of nearly all structures: the bytes that XLA knows of it, and a list of additions.
struct Extension {
  std::size_t bytes;
  int kind;
  Extension* next;
};
constexpr int kMetadata = 1;  // the kind of an extension that asks for a handler's version

struct Version {
  std::size_t bytes;
  Extension* extensions;
  int major, minor;
};

struct Metadata {
  std::size_t bytes;
  Version version;
  std::uint32_t traits;     // bits, of which kCapturable is one
  std::int64_t state_type;  // 0: no state
};

// Calls always launch the same on a device: they may be captured into its graph, and be run by that.
constexpr std::uint32_t kCapturable = 1;

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum ErrorCode : int {
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kOutOfRange = 11,
  kInternal = 13,
};

struct Error;    // XLA's own
struct Context;  // XLA's own, of one call

struct NewError {
  std::size_t bytes;
  Extension* extensions;
  const char* text;  // copied
  ErrorCode code;
};

struct DeleteError {
  std::size_t bytes;
  Extension* extensions;
  Error* error;
};

struct GetStream {
  std::size_t bytes;
  Extension* extensions;
  Context* context;
  void* stream;  // written by XLA: a CUstream
};

struct AllocateMemory {
  std::size_t bytes;
  Extension* extensions;
  Context* context;
  std::size_t size, alignment;
  void* data;  // written by XLA
};

struct FreeMemory {
  std::size_t bytes;
  Extension* extensions;
  Context* context;
  std::size_t size;
  void* data;
};

struct GetDevice {
  std::size_t bytes;
  Extension* extensions;
  Context* context;
  std::int32_t number;  // written by XLA
};

// What XLA offers to handlers.
struct Functions {
  std::size_t bytes;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*new_error)(NewError*);
  void (*unused[1])();
  void (*delete_error)(DeleteError*);
  void (*unused_too[1])();
  Error* (*get_stream)(GetStream*);
  void (*more_unused[4])();
  Error* (*allocate)(AllocateMemory*);
  Error* (*free)(FreeMemory*);
  void (*others[6])();
  Error* (*get_device)(GetDevice*);
};

enum DataType : int {
  kBool = 1,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 15,
  kBfloat16 = 16,
  kComplex128 = 18,
};

// An array: contiguous, the last axis fastest.
struct Buffer {
  std::size_t bytes;
  Extension* extensions;
  DataType dtype;
  void* data;
  std::int64_t axes;
  std::int64_t* sizes;
};

constexpr int kBuffer = 1;  // the only kind of arguments and results
constexpr int kScalar = 3;  // a kind of attributes
constexpr int kString = 4;  // another one

// Arguments of a call, or its results.
struct Values {
  std::size_t bytes;
  Extension* extensions;
  std::int64_t count;
  int* kinds;
  void** values;
};

struct Text {
  const char* first;
  std::size_t length;
};

struct Scalar {
  DataType dtype;
  void* value;
};

struct Attributes {
  std::size_t bytes;
  Extension* extensions;
  std::int64_t count;
  int* kinds;
  Text** names;
  void** values;
};

// Before a run, when buffers have addresses, and in it; the second may be a capture.
enum Stage : int { kInitialize = 2, kExecute = 3 };

struct CallFrame {
  std::size_t bytes;
  Extension* extensions;
  const Functions* functions;
  Context* context;
  Stage stage;
  Values arguments, results;
  Attributes attributes;
};

// Returns null where all is well.
using Handler = Error*(CallFrame*);

}  // namespace batchkron::xla
