// A C++ program with its own malloc family and no operators. Cairn's operators use the
// program's malloc, aligned_alloc and free, as those of the C++ library do. Where Cairn is linked
// statically, aligned blocks are the library's, from operator new to operator delete.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <string>
#include <vector>

namespace {

alignas(4096) char memory[64 << 20];
size_t used;
volatile int mallocs, aligned_allocs, frees;
volatile bool fails;

bool is_own(const void *pointer) {
  return static_cast<const char *>(pointer) >= memory &&
         static_cast<const char *>(pointer) < memory + sizeof memory;
}

void *take(size_t size, size_t alignment) {
  if (fails || size > sizeof memory / 2) return nullptr;
  size_t space = 4096 + (size + 4095) / 4096 * 4096;
  if (alignment <= 64) space = (size + 127) / 64 * 64;
  size_t at = __atomic_fetch_add(&used, space, __ATOMIC_RELAXED);
  char *block = memory + at;
  block += -reinterpret_cast<uintptr_t>(block) % alignment;
  if (at + space > sizeof memory) return nullptr;
  return block;
}

}  // namespace

extern "C" void *malloc(size_t size) {
  mallocs++;
  return take(size, 16);
}
extern "C" void free(void *pointer) {
  if (!pointer) return;
  frees++;
  if (!is_own(pointer)) {
    fputs("own_malloc_cxx: free of another allocator's block\n", stderr);
    abort();
  }
}
extern "C" void *calloc(size_t count, size_t size) { return malloc(count * size); }
extern "C" void *realloc(void *pointer, size_t size) {
  void *block = malloc(size);
  if (block && pointer) memmove(block, pointer, size);
  return block;
}
extern "C" void *aligned_alloc(size_t alignment, size_t size) {
  aligned_allocs++;
  return take(size, alignment);
}

#define check(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "own_malloc_cxx.cc:%d: %s\n", __LINE__, #condition);                         \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

namespace {

constexpr std::align_val_t k64{64};
// 0 where Cairn is linked statically.
const int kAligned = strcmp(getenv("CAIRN_TEST_SUBJECT"), "self") == 0 ? 0 : 4;

// Uses each form once: the blocks are the program's, by one call of its functions.
void every_form(size_t size) {
  struct {
    void *block;
    bool aligned;
  } made[8];
  mallocs = aligned_allocs = frees = 0;
  made[0] = {::operator new(size), false};
  made[1] = {::operator new[](size), false};
  made[2] = {::operator new(size, std::nothrow), false};
  made[3] = {::operator new[](size, std::nothrow), false};
  check(mallocs == 4 && aligned_allocs == 0);
  made[4] = {::operator new(size, k64), true};
  made[5] = {::operator new[](size, k64), true};
  made[6] = {::operator new(size, k64, std::nothrow), true};
  made[7] = {::operator new[](size, k64, std::nothrow), true};
  check(mallocs == 4 && aligned_allocs == kAligned);
  for (auto &one : made) {
    check(is_own(one.block) == (!one.aligned || kAligned != 0));
    check(!one.aligned || reinterpret_cast<uintptr_t>(one.block) % 64 == 0);
    memset(one.block, 1, size);
  }
  ::operator delete(made[0].block);
  ::operator delete[](made[1].block, size);
  ::operator delete(made[2].block, size);
  ::operator delete[](made[3].block);
  ::operator delete(made[4].block, k64);
  ::operator delete[](made[5].block, size, k64);
  ::operator delete(made[6].block, size, k64);
  ::operator delete[](made[7].block, k64, std::nothrow);
  check(frees == 4 + kAligned);
}

int handled;

}  // namespace

int main() {
  for (size_t size : {1, 100, 1000, 1025, 40000, 300000}) every_form(size);

  // Out of memory, the operators call the new handler and throw.
  fails = true;
  check(::operator new(10, std::nothrow) == nullptr);
  if (kAligned != 0) check(::operator new(10, k64, std::nothrow) == nullptr);
  std::set_new_handler([] {
    handled++;
    fails = false;
  });
  ::operator delete(::operator new(10));
  check(handled == 1);
  std::set_new_handler(nullptr);
  mallocs = aligned_allocs = 0;
  volatile size_t huge = PTRDIFF_MAX;
  try {
    ::operator delete(::operator new(huge));
    check(false);
  } catch (const std::bad_alloc &) {
  }
  check(mallocs > 0);
  try {
    ::operator delete(::operator new(huge, k64), k64);
    check(false);
  } catch (const std::bad_alloc &) {
  }

  std::vector<std::string> strings;
  for (size_t i = 0; i < 1000; i++) strings.push_back(std::string(i, 'x'));
  check(is_own(strings.data()) && is_own(strings.back().data()));
  return 0;
}
