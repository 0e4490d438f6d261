// Wrong sizes: sized frees, requests that overflow, and functions that do not match.
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>

#include <new>

#include "faults.h"

namespace faults {

namespace {

// Requests that no allocator can serve: any block that is returned counts as harm.
void judge_request(void *block) {
  done(block != nullptr);
  verdict(block != nullptr);
}

void calloc_overflow() {
  begun();
  judge_request(opaque(calloc(opaque(SIZE_MAX / 4 + 2), 4)));
}
void array_overflow() {
  begun();
  judge_request(opaque(reallocarray(nullptr, opaque(SIZE_MAX / 4 + 2), 4)));
}
void negative_size() {
  begun();
  judge_request(opaque(malloc(opaque(SIZE_MAX - 16))));
}
void aligned_overflow() {
  void *block = nullptr;
  begun();
  if (posix_memalign(&block, 4096, opaque(SIZE_MAX - 100)) != 0) block = nullptr;
  judge_request(block);
}

using FreeSized = void (*)(void *, size_t);

void free_sized_wrong() {
  const FreeSized free_sized = reinterpret_cast<FreeSized>(dlsym(RTLD_DEFAULT, "free_sized"));
  if (!free_sized) cannot();
  Neighbours blocks(kSmall);
  begun();
  free_sized(opaque(blocks.faulty()), opaque(size_t{500}));
  done();
  verdict(!heap_works(kSmall) || !heap_works(500) || blocks.damaged());
}

template <size_t given, size_t size>
void delete_sized() {
  Neighbours blocks(size);
  void *block = opaque(::operator new(size));
  begun();
  ::operator delete(block, opaque(given));
  done();
  verdict(!heap_works(size) || !heap_works(given) || blocks.damaged());
}

void delete_sized_freed() {
  Neighbours blocks(kSmall);
  void *block = opaque(::operator new(kSmall));
  ::operator delete(block, kSmall);
  begun();
  ::operator delete(opaque(block), kSmall);
  done();
  verdict(!heap_works(kSmall));
}

// Where one heap serves both functions nothing is wrong for the allocator, so no harm is the best
// result.
void malloc_delete() {
  Neighbours blocks(kSmall);
  begun();
  delete opaque(blocks.faulty());
  done();
  verdict(!heap_works(kSmall) || blocks.damaged());
}
void new_free() {
  char *block = opaque(new char[kSmall]);
  begun();
  free(block);
  done();
  verdict(!heap_works(kSmall));
}
void new_array_delete() {
  char *block = opaque(new char[kSmall]);
  begun();
  delete block;
  done();
  verdict(!heap_works(kSmall));
}
void aligned_new_delete() {
  void *block = ::operator new(200, std::align_val_t{128});
  begun();
  ::operator delete(opaque(block));
  done();
  verdict(!heap_works(200));
}

void usable_of_freed() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  begun();
  const size_t size = opaque(malloc_usable_size(opaque(blocks.faulty())));
  done();
  verdict(size != 0);
}
void usable_of_stack() {
  char local[64] = "local";
  free(make(kSmall, kOwn));
  begun();
  const size_t size = opaque(malloc_usable_size(opaque(local) + 16));
  done();
  verdict(size != 0);
}
void realloc_of_interior() {
  Neighbours blocks(kSmall);
  blocks.faulty_stays();
  begun();
  opaque(realloc(opaque(blocks.faulty()) + 16, 200));
  done();
  const bool works = heap_works(kSmall);
  verdict(!works || blocks.damaged());
}
void realloc_of_stack() {
  alignas(16) char local[4096] = "local";
  free(make(kSmall, kOwn));
  begun();
  opaque(realloc(opaque(local) + 16, 200));
  done();
  verdict(!heap_works(kSmall, local));
}

constexpr char kGroup[] = "sizes and functions";

const Fault kList[] = {
    {kGroup, "calloc-overflow", "calloc whose product overflows", false, calloc_overflow},
    {kGroup, "array-overflow", "reallocarray whose product overflows", false, array_overflow},
    {kGroup, "negative-size", "malloc of -17", false, negative_size},
    {kGroup, "aligned-overflow", "posix_memalign of -101", false, aligned_overflow},
    {kGroup, "free-sized", "free_sized of 48 bytes as 500", true, free_sized_wrong},
    {kGroup, "delete-larger", "delete of 48 bytes as 500", true, delete_sized<500, kSmall>},
    {kGroup, "delete-smaller", "delete of 500 bytes as 48", true, delete_sized<kSmall, 500>},
    {kGroup, "delete-large", "delete of 200 KiB as 48", true, delete_sized<kSmall, kLarge>},
    {kGroup, "delete-sized-freed", "sized delete twice", true, delete_sized_freed},
    {kGroup, "malloc-delete", "malloc, then delete", false, malloc_delete},
    {kGroup, "new-array-free", "new[], then free", false, new_free},
    {kGroup, "new-array-delete", "new[], then delete", false, new_array_delete},
    {kGroup, "aligned-new-delete", "aligned new, then plain delete", false, aligned_new_delete},
    {kGroup, "usable-of-freed", "malloc_usable_size of a freed block", true, usable_of_freed},
    {kGroup, "usable-of-stack", "malloc_usable_size of stack", true, usable_of_stack},
    {kGroup, "realloc-interior", "realloc of an interior pointer", true, realloc_of_interior},
    {kGroup, "realloc-stack", "realloc of stack", true, realloc_of_stack},
};

}  // namespace

const FaultList kSizes = {kList, sizeof kList / sizeof *kList};

}  // namespace faults
