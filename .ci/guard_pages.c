/* Puts every array that NumPy allocates between pages that nobody may touch, so that a read or write
   of even one byte beyond its end, or before its beginning, ends the process. Loaded by
   .ci/guard_pages as a pytest plugin, over the kernels as users get them: no sanitizer's build.

   Arrays alternate: one ends where the guard behind it begins, the next one begins where the guard
   before it ends. What is left of the first or last page is filled with bytes that are NaN in every
   floating-point type. NumPy calls all functions here under the global interpreter lock. */
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 1 << 20 }; /* more than the kernel allows mappings */

typedef struct {
  char* pointer; /* of the array; NULL where the slot was never used */
  char* begin;   /* of its mapping, guards included; NULL where the slot is free again */
  size_t size, mapped;
} Allocation;

static Allocation allocations[SLOTS];
static unsigned long count;

static size_t slot_of(const char* pointer) { return (uintptr_t)pointer * 0x9e3779b97f4a7c15ull >> 44; }

static Allocation* find(const char* pointer) {
  size_t slot = slot_of(pointer);
  while (allocations[slot].pointer != pointer || !allocations[slot].begin) {
    if (!allocations[slot].pointer) return NULL;
    slot = (slot + 1) % SLOTS;
  }
  return &allocations[slot];
}

static void* guarded_malloc(void* context, size_t size) {
  (void)context;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t inside = (size / page + 1) * page, mapped = inside + 2 * page;
  char* begin = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return NULL;
  if (mprotect(begin + page, inside, PROT_READ | PROT_WRITE)) {
    munmap(begin, mapped);
    return NULL;
  }
  /* NumPy itself reads the first element of an empty array in places */
  const size_t reached = size < 16 ? 16 : size;
  char* pointer = begin + page + (count++ % 2 == 0 ? inside - reached : 0);
  memset(begin + page, 0xff, inside);
  size_t slot = slot_of(pointer);
  while (allocations[slot].begin) slot = (slot + 1) % SLOTS;
  allocations[slot] = (Allocation){pointer, begin, size, mapped};
  return pointer;
}

static void* guarded_calloc(void* context, size_t number, size_t each) {
  if (each && number > SIZE_MAX / each) return NULL;
  void* pointer = guarded_malloc(context, number * each);
  if (pointer) memset(pointer, 0, number * each);
  return pointer;
}

static void guarded_free(void* context, void* pointer, size_t size) {
  (void)context, (void)size;
  Allocation* found = pointer ? find(pointer) : NULL;
  if (!found) return;
  munmap(found->begin, found->mapped);
  found->begin = NULL;
}

static void* guarded_realloc(void* context, void* pointer, size_t size) {
  Allocation* found = pointer ? find(pointer) : NULL;
  char* moved = guarded_malloc(context, size);
  if (moved && found) {
    memcpy(moved, pointer, found->size < size ? found->size : size);
    guarded_free(context, pointer, 0);
  }
  return moved;
}

static PyDataMem_Handler handler = {
    "guard pages", 1, {NULL, guarded_malloc, guarded_calloc, guarded_realloc, guarded_free}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "guard_pages", "Arrays between guard pages.", -1, NULL, 0, 0, 0, 0};

PyMODINIT_FUNC PyInit_guard_pages(void) {
  import_array();
  PyObject* capsule = PyCapsule_New(&handler, "mem_handler", NULL);
  if (!capsule) return NULL;
  PyObject* before = PyDataMem_SetHandler(capsule);
  Py_DECREF(capsule);
  if (!before) return NULL;
  Py_DECREF(before);
  return PyModule_Create(&definition);
}
