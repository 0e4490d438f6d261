// Misuse: one error a case, with the exact message. The process must write one line that names the
// error and the pointer, and abort; nothing may have been damaged before.
//
// A case frees or prepares blocks in the child of the death test. The addresses of these blocks are
// known here, since the child is a fork of this process. Nothing else may allocate between the
// preparation and the error: it could get the freed block, which would then be live.

#include "fault.h"

namespace {

using namespace fault;

INSTANTIATE_SIZES();

// ---- double free -------------------------------------------------------------------------------

TEST(Misuse, TheExampleOfTheManual) {
  void *block = malloc(40);
  EXPECT_FAULT({
    free(block);
    free(block);
  }, "^cairn: double free of 0x[0-9a-f]+ \\(48-byte block\\)\n$");
}

TEST_P(Sizes, DoubleFree) {
  EXPECT_FAULT({
    free(block_);
    free(block_);
  }, freed_twice());
}

TEST_P(Sizes, DoubleFreeAfterItsNeighbours) {
  EXPECT_FAULT({
    free(block_);
    for (void *neighbour : before_) free(neighbour);
    for (void *neighbour : after_) free(neighbour);
    free(block_);
  }, freed_with_all(block_, usable_));
}

TEST_P(Sizes, DoubleFreeWithOtherFreesBetween) {
  static void *others[2000];
  for (size_t i = 0; i < 2000; i++) others[i] = malloc(i % 700);
  EXPECT_FAULT({
    free(block_);
    for (void *other : others) free(other);
    free(block_);
  }, freed_twice());
  for (void *other : others) free(other);
}

TEST_P(Sizes, DoubleFreeThroughRealloc) {
  EXPECT_FAULT({
    void *none = realloc(block_, opaque(size_t{0}));
    if (none) _exit(1);
    free(block_);
  }, freed_twice());
}

TEST_P(Sizes, DoubleFreeByAnotherThread) {
  EXPECT_FAULT({
    free(block_);
    in_thread(free_in_thread, block_);
  }, freed_twice());
}

TEST_P(Sizes, DoubleFreeWithinAnotherThread) {
  EXPECT_FAULT(in_thread(free_twice_in_thread, block_), freed_twice());
}

TEST_P(Sizes, DoubleFreeAfterAnotherThreads) {
  EXPECT_FAULT({
    in_thread(free_in_thread, block_);
    free(block_);
  }, freed_twice());
}

TEST_P(Sizes, DoubleFreeByTwoOtherThreads) {
  EXPECT_FAULT({
    in_thread(free_in_thread, block_);
    in_thread(free_in_thread, block_);
  }, freed_twice());
}

// The owner has ended when its block is freed twice.
TEST_P(Sizes, DoubleFreeOfADeadThreadsBlock) {
  static void *orphan;
  static size_t size;
  size = GetParam();
  in_thread([](void *) -> void * {
    void *blocks[9];
    for (void *&block : blocks) block = malloc(size);
    orphan = blocks[4];
    return nullptr;
  }, nullptr);
  const size_t usable = block_size(orphan);
  EXPECT_FAULT({
    free(orphan);
    free(orphan);
  }, freed_twice(orphan, usable));
}

// Other blocks of the slab were allocated and freed, and the bits of the slab were claimed and
// collected, but this block was not handed out again: the double free must still be found.
TEST(Misuse, DoubleFreeAfterTheSlabWasReused) {
  static void *blocks[4000];
  for (void *&block : blocks) block = malloc(64);
  void *victim = blocks[2000];
  const size_t usable = block_size(victim);
  EXPECT_FAULT({
    free(victim);
    for (int round = 0; round < 50; round++) {
      // Allocate until the victim's place is used, then free exactly that block last.
      static void *fresh[8000];
      int count = 0;
      while (count < 8000) {
        fresh[count] = malloc(64);
        if (fresh[count++] == victim) break;
      }
      for (int i = 0; i < count; i++) {
        if (fresh[i] != victim) free(fresh[i]);
      }
      for (int i = 0; i < count; i++) {
        if (fresh[i] == victim) free(victim);
      }
    }
    free(victim);
  }, Eq(double_free(victim, usable)));
}

// A valid free of a block that was handed out again must not be reported.
TEST(Misuse, ReusedBlockIsFreedLegally) {
  for (int i = 0; i < 100000; i++) {
    void *block = malloc(static_cast<size_t>(i % 500));
    free(block);
    void *again = malloc(static_cast<size_t>(i % 500));
    free(again);
  }
}

TEST(Misuse, DoubleFreeOfOtherKinds) {
  struct {
    const char *name;
    void *(*make)();
  } const kinds[] = {
      {"calloc", [] { return calloc(10, 10); }},
      {"realloc", [] { return realloc(malloc(10), 500); }},
      {"memalign", [] { return memalign(256, 100); }},
      {"memalign of a page", [] { return memalign(4096, 100); }},
      {"posix_memalign", [] {
         void *block = nullptr;
         return posix_memalign(&block, 64, 1000) == 0 ? block : nullptr;
       }},
      {"valloc", [] { return valloc(100); }},
      {"new", [] { return ::operator new(100); }},
      {"aligned new", [] { return ::operator new(100, std::align_val_t{128}); }},
      {"zero bytes", [] { return malloc(0); }},
  };
  for (const auto &kind : kinds) {
    SCOPED_TRACE(kind.name);
    void *beside = kind.make();
    void *block = kind.make();
    const size_t usable = block_size(block);
    EXPECT_FAULT({
      free(block);
      free(block);
    }, Eq(double_free(block, usable)));
    EXPECT_FAULT({
      ::operator delete(block);
      ::operator delete(block);
    }, Eq(double_free(block, usable)));
    EXPECT_FAULT({
      ::operator delete[](block, std::nothrow);
      free(block);
    }, Eq(double_free(block, usable)));
    free(beside);
    free(block);
  }
}

// The mapping that a grown block leaves is kept for the next block that grows, or is unmapped.
TEST(Misuse, DoubleFreeOfABlockThatGrew) {
  void *beside = malloc(kMiB);
  void *block = malloc(kMiB);
  for (size_t size = kMiB; size < 16 * kMiB; size += size / 2) block = opaque(realloc(block, size));
  EXPECT_FAULT({
    free(block);
    free(block);
  }, testing::AnyOf(Eq(memory_is_free(block)), Eq(foreign(block))));
  if (!getenv("CAIRN_TEST_HARDENED")) {
    EXPECT_FAULT({
      free(block);
      free(block);
    }, Eq(memory_is_free(block)));
  }
  free(block);
  free(beside);
}

// ---- interior pointers -------------------------------------------------------------------------

TEST_P(Sizes, FreeOfInteriorPointer) {
  const size_t offsets[] = {1, 8, 16, 24, usable_ / 2, usable_ - 1, 4096, 65536, kMiB};
  for (size_t offset : offsets) {
    if (offset == 0 || offset >= usable_) continue;
    char *inside = block_ + offset;
    EXPECT_FAULT(free(inside), Eq(interior(inside, block_, usable_))) << "offset " << offset;
  }
}

TEST_P(Sizes, FreeOfInteriorPointerByAnotherThread) {
  if (usable_ < 16) return;
  char *inside = block_ + usable_ / 2;
  EXPECT_FAULT(in_thread(free_in_thread, inside), Eq(interior(inside, block_, usable_)));
}

TEST_P(Sizes, OtherCallsWithInteriorPointer) {
  if (usable_ < 16) return;
  char *inside = block_ + 8;
  const auto named = testing::ContainsRegex("^cairn: [^\n]*" + hex(inside) + "[^\n]*\n$");
  EXPECT_FAULT(opaque(realloc(inside, 100)), named);
  EXPECT_FAULT(opaque(malloc_usable_size(inside)), named);
  EXPECT_FAULT(::operator delete(inside), named);
}

// An aligned block is at the address that memalign returned, also if that is inside the memory that
// was taken for it.
TEST(Misuse, FreeOfInteriorPointerOfAlignedBlocks) {
  for (size_t alignment : {size_t{64}, size_t{4096}, 64 * kKiB, 2 * kMiB}) {
    char *block = static_cast<char *>(memalign(alignment, 1000));
    EXPECT_FAULT(free(block + 16),
                 testing::ContainsRegex("^cairn: [^\n]*interior pointer " + hex(block + 16) +
                                        "[^\n]*\n$"))
        << alignment;
    free(block);
  }
}

// ---- foreign pointers --------------------------------------------------------------------------

const char kConstant[] = "constant";
thread_local char t_local[64] = "local";

TEST(Misuse, FreeOfForeignPointers) {
  char on_stack[64] = "stack";
  void *mapped = mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
  auto far = [](uintptr_t address) { return reinterpret_cast<void *>(opaque(address)); };
  struct {
    const char *name;
    void *pointer;
  } const foreigners[] = {
      {"stack", on_stack},
      {"stack, unaligned", on_stack + 3},
      {"global", &g_global},
      {"constant", const_cast<char *>(kConstant)},
      {"thread-local", t_local},
      {"code", reinterpret_cast<void *>(&foreign)},
      {"the libc", dlsym(RTLD_DEFAULT, "printf")},
      {"malloc itself", reinterpret_cast<void *>(&malloc)},
      {"a mapping of the program", mapped},
      {"inside that mapping", static_cast<char *>(mapped) + 65536},
      {"end of the first page", far(1)},
      {"first page", far(16)},
      {"64 KiB", far(0x10000)},
      {"4 GiB", far(0x100000000)},
      {"unmapped", far(0x123456780000)},
      {"highest of user space", far(0x7fffffffffff)},
      {"first beyond user space", far(0x800000000000)},
      {"2^48", far(0x1000000000000)},
      {"2^56", far(0x100000000000000)},
      {"not canonical", far(0x0123456789abcdef)},
      {"kernel", far(0xffff888000000000)},
      {"kernel text", far(0xffffffff81000000)},
      {"2^63", far(0x8000000000000000)},
      {"-1", far(~uintptr_t{0})},
      {"-16", far(~uintptr_t{0} - 15)},
      {"MAP_FAILED's page", far(~uintptr_t{0} - 4095)},
  };
  for (const auto &foreigner : foreigners) {
    SCOPED_TRACE(foreigner.name);
    void *pointer = foreigner.pointer;
    EXPECT_FAULT(free(pointer), Eq(foreign(pointer)));
    EXPECT_FAULT(in_thread(free_in_thread, pointer), Eq(foreign(pointer)));
    EXPECT_FAULT(::operator delete(pointer), Eq(foreign(pointer)));
    const auto named = testing::ContainsRegex("^cairn: [^\n]*" + hex(pointer) + "[^\n]*\n$");
    EXPECT_FAULT(opaque(realloc(pointer, 100)), named);
    EXPECT_FAULT(opaque(realloc(pointer, opaque(size_t{0}))), named);
    EXPECT_FAULT(opaque(malloc_usable_size(pointer)), named);
  }
  munmap(mapped, 4 * kMiB);
}

// Addresses with an equal low half and another high half, and addresses before and behind the
// memory of the heap.
TEST(Misuse, FreeOfPointersNearTheHeap) {
  char *block = static_cast<char *>(malloc(100));
  for (size_t distance : {size_t{1} << 32, size_t{1} << 36, size_t{1} << 40, size_t{1} << 47,
                          size_t{1} << 48, size_t{1} << 63}) {
    for (char *pointer : {opaque(block) + distance, opaque(block) - distance}) {
      EXPECT_FAULT(free(pointer), Eq(foreign(pointer))) << hex(pointer) << ", next to "
                                                        << hex(block);
    }
  }
  // Addresses in 64 KiB units around the block, of which some are free and some hold other blocks.
  for (int unit = -2000; unit <= 2000; unit += 50) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(block) & ~uintptr_t{0xffff};
    char *pointer = reinterpret_cast<char *>(base) + unit * 65536 + 7;
    EXPECT_FAULT(free(pointer), testing::ContainsRegex("^cairn: [^\n]*" + hex(pointer) +
                                                       "[^\n]*\n$"));
  }
  free(block);
}

// A block in the libc's own heap, which is a valid block for the libc.
TEST(Misuse, FreeOfTheLibcsOwnBlock) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  auto *libc_malloc = reinterpret_cast<void *(*)(size_t)>(dlsym(libc, "malloc"));
  ASSERT_NE(libc_malloc, nullptr);
  void *block = libc_malloc(100);
  EXPECT_FAULT(free(block), Eq(foreign(block)));
}

}  // namespace
