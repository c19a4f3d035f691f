// What compilers and headers of today ask of glibc and libstdc++ that those of manylinux_2_28 lack.
#include <new>

#pragma GCC visibility push(hidden)

// glibc 2.32: whether the process has one thread, so that counters need not be atomic. They are.
extern "C" {
extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}

namespace std {
// libstdc++ of GCC 11: what an array of too many elements throws
void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std

#pragma GCC visibility pop
