// A program that replaces some of the operators new and delete, as [new.delete] allows. The forms
// that it does not replace must call those that it does: its blocks begin behind a header of its
// own, so any other operator would free a pointer that no allocator handed out.
//
// REPLACES_SINGLE, REPLACES_ARRAY and REPLACES_ALIGNED select the pairs. Firefox's executable
// replaces the single forms only.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <string>
#include <vector>

#include "subject.h"

namespace {

struct Counts {
  int single_new, single_delete, array_new, array_delete;
  int aligned_new, aligned_delete;
};
Counts counts;
bool fails;  // the next call of a replaced new throws

constexpr uint64_t kMagic = 0x5EEDB10C5EEDB10C;
constexpr size_t kHeader = 256;  // a multiple of every alignment that is tested

[[maybe_unused]] void *make(size_t size, size_t alignment) {
  if (fails) throw std::bad_alloc();
  void *raw = nullptr;
  if (posix_memalign(&raw, alignment < 16 ? 16 : alignment, size + kHeader) != 0)
    throw std::bad_alloc();
  char *block = static_cast<char *>(raw) + kHeader;
  memcpy(block - sizeof kMagic, &kMagic, sizeof kMagic);
  return block;
}

[[maybe_unused]] void drop(void *pointer) {
  if (!pointer) return;
  char *block = static_cast<char *>(pointer);
  uint64_t magic;
  memcpy(&magic, block - sizeof magic, sizeof magic);
  REQUIRE(magic == kMagic);
  memset(block - sizeof magic, 0, sizeof magic);
  free(block - kHeader);
}

}  // namespace

#ifdef REPLACES_SINGLE
void *operator new(size_t size) {
  counts.single_new++;
  return make(size, 16);
}
void operator delete(void *pointer) noexcept {
  counts.single_delete++;
  drop(pointer);
}
#endif

#ifdef REPLACES_ARRAY
void *operator new[](size_t size) {
  counts.array_new++;
  return make(size, 16);
}
void operator delete[](void *pointer) noexcept {
  counts.array_delete++;
  drop(pointer);
}
#endif

#ifdef REPLACES_ALIGNED
void *operator new(size_t size, std::align_val_t alignment) {
  counts.aligned_new++;
  return make(size, static_cast<size_t>(alignment));
}
void operator delete(void *pointer, std::align_val_t) noexcept {
  counts.aligned_delete++;
  drop(pointer);
}
#endif

namespace {

constexpr std::align_val_t k64{64};

// Checks that new and delete each called the replaced operator once, and no other replaced one.
void expect(const char *form, Counts expected) {
  if (memcmp(&counts, &expected, sizeof counts) != 0) {
    fprintf(stderr,
            "%s: replaced operators called: new %d, delete %d, new[] %d, delete[] %d, aligned new "
            "%d, aligned delete %d\n",
            form, counts.single_new, counts.single_delete, counts.array_new, counts.array_delete,
            counts.aligned_new, counts.aligned_delete);
    exit(1);
  }
  counts = {};
}

#ifdef REPLACES_SINGLE
constexpr Counts kSingle = {1, 1, 0, 0, 0, 0};
#else
constexpr Counts kSingle = {};
#endif
#ifdef REPLACES_ARRAY
constexpr Counts kArray = {0, 0, 1, 1, 0, 0};
#else
constexpr Counts kArray = kSingle;
#endif
#ifdef REPLACES_ALIGNED
constexpr Counts kAligned = {0, 0, 0, 0, 1, 1};
#else
constexpr Counts kAligned = {};
#endif

void use(void *block, size_t size, size_t alignment) {
  REQUIRE(block && reinterpret_cast<uintptr_t>(block) % alignment == 0);
  memset(block, 0x5a, size);
}

void every_form(size_t size) {
  void *block = ::operator new(size);
  use(block, size, 8);
  ::operator delete(block);
  expect("new, delete", kSingle);

  use(block = ::operator new(size), size, 8);
  ::operator delete(block, size);
  expect("new, sized delete", kSingle);

  use(block = ::operator new(size, std::nothrow), size, 8);
  ::operator delete(block, std::nothrow);
  expect("nothrow new, nothrow delete", kSingle);

  use(block = ::operator new[](size), size, 8);
  ::operator delete[](block);
  expect("new[], delete[]", kArray);

  use(block = ::operator new[](size), size, 8);
  ::operator delete[](block, size);
  expect("new[], sized delete[]", kArray);

  use(block = ::operator new[](size, std::nothrow), size, 8);
  ::operator delete[](block, std::nothrow);
  expect("nothrow new[], nothrow delete[]", kArray);

  use(block = ::operator new(size, k64), size, 64);
  ::operator delete(block, k64);
  expect("aligned new, delete", kAligned);

  use(block = ::operator new(size, k64), size, 64);
  ::operator delete(block, size, k64);
  expect("aligned new, sized delete", kAligned);

  use(block = ::operator new(size, k64, std::nothrow), size, 64);
  ::operator delete(block, k64, std::nothrow);
  expect("aligned nothrow new, delete", kAligned);

  use(block = ::operator new[](size, k64), size, 64);
  ::operator delete[](block, k64);
  expect("aligned new[], delete[]", kAligned);

  use(block = ::operator new[](size, k64), size, 64);
  ::operator delete[](block, size, k64);
  expect("aligned new[], sized delete[]", kAligned);

  use(block = ::operator new[](size, k64, std::nothrow), size, 64);
  ::operator delete[](block, k64, std::nothrow);
  expect("aligned nothrow new[], delete[]", kAligned);
}

// A nothrow form returns NULL where the replaced operator that it calls throws.
void nothrow_catches() {
  fails = true;
  Counts calls = {};
  if (kSingle.single_new) {
    REQUIRE(::operator new(100, std::nothrow) == nullptr);
    calls.single_new++;
  }
  constexpr bool kArrayThrows = kSingle.single_new != 0 || kArray.array_new != 0;
  if (kArrayThrows) {
    REQUIRE(::operator new[](100, std::nothrow) == nullptr);
    (kArray.array_new ? calls.array_new : calls.single_new)++;
  }
  if (kAligned.aligned_new) {
    REQUIRE(::operator new(100, k64, std::nothrow) == nullptr);
    REQUIRE(::operator new[](100, k64, std::nothrow) == nullptr);
    calls.aligned_new += 2;
  }
  fails = false;
  expect("nothrow forms of a new that throws", calls);
}

}  // namespace

int main() {
  counts = {};  // forget the calls before main
  for (size_t size : {1, 24, 100, 1000, 1025, 5000, 40000, 300000}) every_form(size);
  nothrow_catches();

  // Allocations and frees by the code of the C++ library.
  {
    std::vector<std::string> strings;
    for (size_t i = 0; i < 1000; i++) strings.push_back(std::string(i, 'x'));
  }
  REQUIRE(counts.single_new == counts.single_delete);
  REQUIRE(!kSingle.single_new || counts.single_new > 900);
  return 0;
}
