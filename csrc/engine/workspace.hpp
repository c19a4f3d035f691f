// Scratch memory that grows to the largest size asked for and is then reused: a second call of the
// same size allocates nothing. Its users declare it thread_local, so that threads share none.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace batchkron {

class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { std::free(data_); }

  // Returns at least `bytes` bytes, aligned to 64. Invalidates the contents and the pointer of the
  // call before.
  void* reserve(std::size_t bytes) {
    if (bytes > size_) grow(bytes);
    return data_;
  }

 private:
  void grow(std::size_t bytes) {
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    data_ = std::aligned_alloc(64, rounded);
    if (!data_) throw std::bad_alloc();
    size_ = rounded;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace batchkron
