// Errors, versions, threads: what is not about one product.
#include <new>

#include "c_interface/calls.hpp"
#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron::c_interface {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

bk_status failed(bk_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {  // the text of an earlier error stays
  }
  return status;
}

}  // namespace

bk_status guarded(const std::function<void()>& call) noexcept {
  try {
    call();
    return BK_OK;
  } catch (const std::bad_alloc&) {
    return failed(BK_NO_MEMORY, "there is not enough memory");
  } catch (const std::length_error&) {
    return failed(BK_NO_MEMORY, "there is not enough memory");
  } catch (const std::overflow_error& error) {
    return failed(BK_OVERFLOW, error.what());
  } catch (const std::invalid_argument& error) {
    return failed(BK_INVALID, error.what());
  } catch (const std::runtime_error& error) {  // of an unknown BATCHKRON_ISA
    return failed(BK_UNSUPPORTED, error.what());
  } catch (const std::exception& error) {
    return failed(BK_INTERNAL, error.what());
  } catch (...) {
    return failed(BK_INTERNAL, "an unknown error");
  }
}

}  // namespace batchkron::c_interface

using namespace batchkron;
using namespace batchkron::c_interface;

int32_t bk_abi_version(void) { return BK_ABI_VERSION; }

const char* bk_version(void) { return BATCHKRON_VERSION; }

const char* bk_status_text(bk_status status) {
  switch (status) {
    case BK_OK: return "no error";
    case BK_INVALID: return "an argument is wrong";
    case BK_OVERFLOW: return "a size does not fit into 64 bits";
    case BK_NO_MEMORY: return "there is not enough memory";
    case BK_UNSUPPORTED: return "not supported by this processor and this build";
    case BK_INTERNAL: return "a defect of batchkron";
  }
  return "no status of batchkron";
}

const char* bk_last_error(void) { return last_error().c_str(); }

bk_status bk_instruction_set(const char** name) {
  return guarded([&] {
    expect(name != nullptr, "name is null");
    *name = kernels().name;
  });
}

int32_t bk_num_threads(void) { return num_threads(); }

bk_status bk_set_num_threads(int32_t count) {
  return guarded([&] {
    expect_size(count, "count");
    expect(count <= 4096, "count is more than 4096");
    set_num_threads(count);
  });
}
