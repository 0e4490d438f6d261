// Accesses to freed blocks, and content of freed blocks in new ones.
#include <malloc.h>

#include "faults.h"

namespace faults {

namespace {

alignas(64) char g_decoy[4096];  // target of a forged link

template <size_t size>
void read_after_free() {
  Neighbours blocks(size);
  char *block = make(size, kSecret);
  Neighbours more(size);
  free(block);
  begun();
  const bool shown = shows_secret(opaque(block), size);
  done(shown);
  blocks.free_all();
  more.free_all();
  verdict(shown);
}

void read_after_free_in_thread() {
  Neighbours blocks(kSmall);
  char *block = make(kSmall, kSecret);
  in_thread(free, block);
  begun();
  const bool shown = shows_secret(opaque(block), kSmall);
  done(shown);
  blocks.free_all();
  verdict(shown);
}

void read_after_resize() {
  Neighbours blocks(kSmall);
  char *block = make(kSmall, kSecret);
  Neighbours more(kSmall);  // the block cannot grow where it is
  char *grown = static_cast<char *>(opaque(realloc(block, 5000)));
  if (grown == block) cannot();
  begun();
  const bool shown = shows_secret(opaque(block), kSmall);
  done(shown);
  free(grown);
  blocks.free_all();
  verdict(shown);
}

// Forges the place of a free list's link, and checks whether malloc follows it. Afterwards enough
// blocks are allocated for any queue to reach the block.
template <size_t size>
void write_after_free() {
  Neighbours blocks(size);
  char *block = make(size, kOwn);
  Neighbours more(size);
  free(block);
  char *const decoy = opaque(g_decoy + 64);
  begun();
  for (size_t i = 0; i + sizeof decoy <= 64 && i + sizeof decoy <= size; i += sizeof decoy) {
    memcpy(opaque(block) + i, &decoy, sizeof decoy);
  }
  done(blocks.damaged() || more.damaged());
  const bool works = heap_works(size, g_decoy);
  const bool damaged = blocks.damaged() || more.damaged();
  blocks.free_all();
  more.free_all();
  verdict(!works || !heap_works(size, g_decoy) || damaged);
}

// Calls through the first word of a freed object, as a virtual call does. The attacker has filled
// other freed blocks with an address of his choice.
void call_of_freed() {
  using Method = void (*)();
  struct Object {
    const Method *methods;
    char rest[kSmall - sizeof(const Method *)];
  };
  static bool called;
  static const Method kMethods[] = {[] { called = true; }};
  Object *object = static_cast<Object *>(opaque(malloc(sizeof(Object))));
  object->methods = kMethods;
  free(object);
  begun();
  (*opaque(object)->methods)();
  done(called);
  verdict(called);
}

// Writes to a freed block after the memory has returned to the system, and then wants zeros.
void write_after_trim() {
  constexpr size_t kBytes = 100 * kKiB;
  static char *blocks[64];
  for (char *&block : blocks) block = make(kBytes, kOwn);
  for (char *block : blocks) free(block);
  malloc_trim(0);
  begun();
  for (char *block : blocks) memset(opaque(block) + kBytes / 2, kWritten, 64);
  done();
  bool shown = false;
  for (char *&block : blocks) {
    block = static_cast<char *>(opaque(calloc(1, kBytes)));
    for (size_t i = 0; i < kBytes; i++) shown |= block[i] != 0;
  }
  verdict(shown);
}

// Writes after the block has a new owner.
void write_after_reuse() {
  Neighbours blocks(kSmall);
  char *block = make(kSmall, kOwn);
  free(block);
  static char *owners[20000];
  for (char *&owner : owners) owner = make(kSmall, kSecret);
  begun();
  memset(opaque(block), kWritten, kSmall);
  bool damaged = blocks.damaged();
  for (const char *owner : owners) damaged |= !holds(owner, kSmall, kSecret);
  done(damaged);
  for (char *owner : owners) free(owner);
  blocks.free_all();
  verdict(damaged);
}

void read_after_reuse() {
  char *block = make(kSmall, kOwn);
  free(block);
  static char *owners[20000];
  for (char *&owner : owners) owner = make(kSmall, kSecret);
  begun();
  const bool shown = shows_secret(opaque(block), kSmall);
  done(shown);
  for (char *owner : owners) free(owner);
  verdict(shown);
}

// Whether new blocks show the secret content of freed blocks. The program makes no error, but the
// reader never wrote the bytes that it reads.
bool fresh_shows_secret(size_t size, char *fresh(size_t)) {
  const size_t count = size > kMedium ? 4 : 1000;
  static char *blocks[1000];
  for (size_t i = 0; i < count; i++) blocks[i] = fresh(size);
  bool shown = false;
  begun();
  for (size_t i = 0; i < count; i++) shown |= shows_secret(blocks[i], size);
  done(shown);
  return shown;
}
char *fresh_by_malloc(size_t size) { return static_cast<char *>(opaque(malloc(size))); }
char *fresh_by_memalign(size_t size) { return static_cast<char *>(aligned_alloc(64, size)); }
char *fresh_by_realloc(size_t size) {
  return static_cast<char *>(opaque(realloc(malloc(8), size)));
}

void free_secrets(size_t size) {
  const size_t count = size > kMedium ? 4 : 1000;
  static char *blocks[1000];
  for (size_t i = 0; i < count; i++) blocks[i] = make(size, kSecret);
  for (size_t i = 0; i < count; i++) free(blocks[i]);
}

template <size_t size>
void uninitialised() {
  free_secrets(size);
  verdict(fresh_shows_secret(size, fresh_by_malloc));
}
void uninitialised_aligned() {
  free_secrets(64);
  verdict(fresh_shows_secret(64, fresh_by_memalign));
}
void uninitialised_grown() {
  free_secrets(kSmall);
  verdict(fresh_shows_secret(kSmall, fresh_by_realloc));
}
void uninitialised_of_thread() {
  in_thread([](void *) { free_secrets(kSmall); }, nullptr);
  verdict(fresh_shows_secret(kSmall, fresh_by_malloc));
}
// A block of another size over the freed memory.
void uninitialised_other_size() {
  free_secrets(kSmall);
  verdict(fresh_shows_secret(2000, fresh_by_malloc));
}

constexpr char kUse[] = "after free";
constexpr char kLeak[] = "content of freed blocks";

const Fault kList[] = {
    {kUse, "read-freed", "read after free, 48 bytes", false, read_after_free<kSmall>},
    {kUse, "read-freed-medium", "read after free, 10,000 bytes", false, read_after_free<kMedium>},
    {kUse, "read-freed-large", "read after free, 200 KiB", false, read_after_free<kLarge>},
    {kUse, "read-freed-huge", "read after free, 64 MiB", false, read_after_free<kHuge>},
    {kUse, "read-freed-thread", "read after another thread's free", false,
     read_after_free_in_thread},
    {kUse, "read-resized", "read of the old block after realloc", false, read_after_resize},
    {kUse, "read-reused", "read after the memory has a new owner", false, read_after_reuse},
    {kUse, "write-freed", "write after free, 48 bytes", false, write_after_free<kSmall>},
    {kUse, "write-freed-medium", "write after free, 10,000 bytes", false,
     write_after_free<kMedium>},
    {kUse, "write-freed-large", "write after free, 200 KiB", false, write_after_free<kLarge>},
    {kUse, "write-freed-huge", "write after free, 64 MiB", false, write_after_free<kHuge>},
    {kUse, "call-freed", "call through a freed object", false, call_of_freed},
    {kUse, "write-trimmed", "write after free and a trim, then calloc", false, write_after_trim},
    {kUse, "write-reused", "write after the memory has a new owner", false, write_after_reuse},
    {kLeak, "leak-small", "malloc shows freed content, 48 bytes", false, uninitialised<kSmall>},
    {kLeak, "leak-medium", "malloc shows freed content, 10,000 bytes", false,
     uninitialised<kMedium>},
    {kLeak, "leak-large", "malloc shows freed content, 200 KiB", false, uninitialised<kLarge>},
    {kLeak, "leak-aligned", "aligned_alloc shows freed content", false, uninitialised_aligned},
    {kLeak, "leak-realloc", "realloc's new bytes show freed content", false, uninitialised_grown},
    {kLeak, "leak-thread", "malloc shows content freed by another thread", false,
     uninitialised_of_thread},
    {kLeak, "leak-other-size", "malloc of another size shows freed content", false,
     uninitialised_other_size},
};

}  // namespace

const FaultList kUses = {kList, sizeof kList / sizeof *kList};

}  // namespace faults
