// Frees of pointers that are no block in use.
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <new>

#include "faults.h"

namespace faults {

namespace {

alignas(4096) char g_static[3 * 4096];
const char kConstant[4096] = "constant";

// Afterwards the heap must not hand out a block twice, nor the memory that was freed by error.
[[noreturn]] void judge(size_t size, const void *decoy = nullptr) {
  done();
  verdict(!heap_works(size, decoy));
}

// Blocks in use must also keep their content.
[[noreturn]] void judge(size_t size, const Neighbours &blocks) {
  done();
  const bool works = heap_works(size);
  verdict(!works || blocks.damaged());
}

template <size_t size>
void twice() {
  Neighbours blocks(size);
  free(blocks.faulty());
  begun();
  free(opaque(blocks.faulty()));
  judge(size, blocks);
}

void interleaved() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  blocks.free_next();
  begun();
  free(opaque(blocks.faulty()));
  judge(kSmall);
}

void delayed() {
  Neighbours blocks(kSmall);
  static char *others[5000];
  for (char *&other : others) other = make(kSmall, kOwn);
  free(blocks.faulty());
  for (char *other : others) free(other);
  begun();
  free(opaque(blocks.faulty()));
  judge(kSmall, blocks);
}

// All neighbours are freed first, so that the memory may have been released.
void with_all() {
  Neighbours blocks(kSmall);
  blocks.free_all();
  begun();
  free(opaque(blocks.faulty()));
  judge(kSmall);
}

// A write through the dangling pointer in between destroys what an allocator left in the block.
void written_between() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  memset(opaque(blocks.faulty()), kWritten, kSmall);
  begun();
  free(opaque(blocks.faulty()));
  judge(kSmall, blocks);
}

void first_in_thread() {
  Neighbours blocks(kSmall);
  in_thread(free, blocks.faulty());
  begun();
  free(opaque(blocks.faulty()));
  judge(kSmall, blocks);
}

void second_in_thread() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  begun();
  in_thread(free, opaque(blocks.faulty()));
  judge(kSmall, blocks);
}

void both_in_threads() {
  Neighbours blocks(kSmall);
  in_thread(free, blocks.faulty());
  begun();
  in_thread(free, opaque(blocks.faulty()));
  judge(kSmall, blocks);
}

// The block was allocated by a thread that has ended.
void of_ended_thread() {
  static char *block;
  in_thread([](void *) {
    Neighbours blocks(kSmall);
    block = blocks.faulty();
  }, nullptr);
  free(block);
  begun();
  free(opaque(block));
  judge(kSmall);
}

void in_child() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  begun();
  const pid_t child = fork();
  if (child == 0) {
    free(opaque(blocks.faulty()));
    done();
    verdict(!heap_works(kSmall));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) raise(WTERMSIG(status));
  _exit(WEXITSTATUS(status));
}

// A stale pointer frees the block under its new owner, which then frees it too. Only an allocator
// that reuses freed memory late can report the first of these frees.
void after_reuse() {
  Neighbours blocks(kSmall);
  char *block = blocks.faulty();
  free(block);
  char *owner = make(kSmall, kSecret);
  begun();
  free(opaque(block));
  done();
  char *other = make(kSmall, kWritten);
  const bool harmed = harm(!holds(owner, kSmall, kSecret));
  if (block != owner) verdict(harmed || !heap_works(kSmall));
  free(owner);
  if (other != owner) free(other);
  verdict(harmed);
}

void by_realloc() {
  Neighbours blocks(kSmall);
  free(blocks.faulty());
  begun();
  opaque(realloc(opaque(blocks.faulty()), 100));
  judge(kSmall);
}

void by_delete() {
  struct Node {
    char text[kSmall];
  };
  Node *node = opaque(new Node);
  Node *other = opaque(new Node);
  delete node;
  begun();
  delete opaque(node);
  done();
  delete other;
  verdict(!heap_works(kSmall));
}

void of_aligned() {
  char *block = static_cast<char *>(opaque(aligned_alloc(256, 256)));
  char *other = static_cast<char *>(opaque(aligned_alloc(256, 256)));
  free(block);
  begun();
  free(opaque(block));
  done();
  free(other);
  verdict(!heap_works(256));
}

template <size_t size, size_t offset>
void interior() {
  Neighbours blocks(size);
  blocks.faulty_stays();
  begun();
  free(opaque(blocks.faulty()) + offset);
  judge(size, blocks);
}

// Content that looks like the libc's header before a block.
void interior_forged() {
  Neighbours blocks(1000);
  size_t *words = reinterpret_cast<size_t *>(blocks.faulty());
  for (int i = 0; i < 100; i++) words[i] = 0x61;
  blocks.faulty_stays();
  begun();
  free(opaque(blocks.faulty()) + 64);
  judge(80, blocks);
}

void behind() {
  Neighbours blocks(kLarge);
  blocks.faulty_stays();
  char *place = blocks.faulty() + 300 * kKiB;
  while (blocks.begins_at(place)) place += 4 * kKiB;  // hardened builds choose places at random
  begun();
  free(opaque(place));
  judge(kLarge, blocks);
}

// A place for a block of this size class that was never handed out.
void never_allocated() {
  char *last = make(700, kOwn);
  for (int i = 0; i < 3; i++) {
    char *next = make(700, kOwn);
    if (next > last) last = next;
  }
  const size_t step = 704;
  begun();
  free(opaque(last) + 20 * step);
  judge(700);
}

void foreign(char *pointer, const void *decoy) {
  free(make(kSmall, kOwn));
  begun();
  free(opaque(pointer));
  judge(kSmall, decoy);
}

void stack() {
  alignas(16) char local[4096] = "local";
  // The forged size is at the place where libc keeps it, as an attacker would put it.
  reinterpret_cast<size_t *>(local)[1] = 0x41;
  foreign(opaque(local) + 16, local);
}
void global() {
  reinterpret_cast<size_t *>(g_static)[1] = 0x41;
  foreign(opaque(g_static) + 16, g_static);
}
void constant() { foreign(const_cast<char *>(opaque(kConstant)) + 16, kConstant); }
void code() { foreign(reinterpret_cast<char *>(opaque(&stack)), nullptr); }
void mapping() {
  void *start =
      mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *inside = static_cast<char *>(start) + 65536;
  foreign(inside, inside);
}
template <uintptr_t address>
void far() {
  foreign(reinterpret_cast<char *>(opaque(address)), nullptr);
}

constexpr char kTwice[] = "double free";
constexpr char kNone[] = "free of no block";

const Fault kList[] = {
    {kTwice, "double-direct", "direct, 48 bytes", true, twice<kSmall>},
    {kTwice, "double-medium", "direct, 10,000 bytes", true, twice<kMedium>},
    {kTwice, "double-large", "direct, 200 KiB", true, twice<kLarge>},
    {kTwice, "double-huge", "direct, 64 MiB", true, twice<kHuge>},
    {kTwice, "double-interleaved", "another free between", true, interleaved},
    {kTwice, "double-written", "a write to the freed block between", true, written_between},
    {kTwice, "double-delayed", "5,000 frees between", true, delayed},
    {kTwice, "double-with-all", "after all blocks around it", true, with_all},
    {kTwice, "double-first-in-thread", "the first in another thread", true, first_in_thread},
    {kTwice, "double-second-in-thread", "the second in another thread", true, second_in_thread},
    {kTwice, "double-in-threads", "in two other threads", true, both_in_threads},
    {kTwice, "double-of-ended-thread", "of a block of an ended thread", true, of_ended_thread},
    {kTwice, "double-in-child", "the second in a forked child", true, in_child},
    {kTwice, "double-after-reuse", "after reuse: under its new owner", false, after_reuse},
    {kTwice, "double-realloc", "realloc of a freed block", true, by_realloc},
    {kTwice, "double-delete", "delete twice", true, by_delete},
    {kTwice, "double-aligned", "of an aligned block", true, of_aligned},
    {kNone, "interior-16", "interior, 16 bytes on", true, interior<kSmall, 16>},
    {kNone, "interior-unaligned", "interior, unaligned", true, interior<kSmall, 1>},
    {kNone, "interior-medium", "interior, 4 KiB on in 10,000", true, interior<kMedium, 4096>},
    {kNone, "interior-large", "interior, 4 KiB on in 200 KiB", true, interior<kLarge, 4096>},
    {kNone, "interior-huge", "interior, 1 MiB on in 64 MiB", true, interior<kHuge, kMiB>},
    {kNone, "interior-forged", "interior, a forged header before it", true, interior_forged},
    {kNone, "behind-large", "100 KiB behind a block of 200 KiB", true, behind},
    {kNone, "never-allocated", "where none was handed out yet", true, never_allocated},
    {kNone, "stack", "stack", true, stack},
    {kNone, "global", "static data", true, global},
    {kNone, "constant", "constant", true, constant},
    {kNone, "code", "code", true, code},
    {kNone, "mapping", "a mapping of the program", true, mapping},
    {kNone, "far-low", "far: 0x10", true, far<0x10>},
    {kNone, "far-unmapped", "far: unmapped", true, far<0x123456780000>},
    {kNone, "far-kernel", "far: the kernel's half", true, far<0xffff888000001000>},
};

}  // namespace

const FaultList kFrees = {kList, sizeof kList / sizeof *kList};

}  // namespace faults
