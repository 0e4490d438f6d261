// Misuse: one fault a case, with the exact message. The process must write one line that names the
// fault and the pointer, and abort; nothing may have been harmed before.
//
// A case frees or prepares in the death test's child; the pointer is known here beforehand, since
// the child is a fork of this process. Nothing else may allocate between the preparation and the
// fault, lest a freed block be handed out again and be alive.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <new>
#include <string>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;
using subject::opaque;
using testing::AnyOf;
using testing::Eq;

// A fault ends by SIGABRT with exactly the expected text on stderr.
#define EXPECT_FAULT(statement, expected) \
  EXPECT_EXIT(statement, testing::KilledBySignal(SIGABRT), expected)

using Message = testing::Matcher<const std::string &>;

// Blocks up to this share slabs, whose bits remember every block.
constexpr size_t kSmallMost = 32 * kKiB;

std::string hex(const void *pointer) {
  char text[32];
  snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
  return text;
}

std::string block_of(size_t size) { return std::to_string(size) + "-byte block"; }

std::string double_free(const void *block, size_t size) {
  return "cairn: double free of " + hex(block) + " (" + block_of(size) + ")\n";
}
std::string memory_is_free(const void *block) {
  return "cairn: double free of " + hex(block) + " (its memory is free)\n";
}
std::string interior(const void *pointer, const void *block, size_t size) {
  return "cairn: free of interior pointer " + hex(pointer) + " (" + block_of(size) + " at " +
         hex(block) + ")\n";
}
std::string foreign(const void *pointer) {
  return "cairn: free of " + hex(pointer) + ", which is not a Cairn block\n";
}
std::string wrong_size(const void *block, size_t given, size_t size) {
  return "cairn: free_sized of " + hex(block) + " with size " + std::to_string(given) + " (" +
         block_of(size) + ")\n";
}
std::string realloc_of_freed(const void *block, size_t size) {
  return "cairn: realloc of freed block " + hex(block) + " (" + block_of(size) + ")\n";
}

// One size of every kind of block: small, medium, large, huge.
class Sizes : public testing::TestWithParam<size_t> {
 protected:
  // With neighbours that live on, so that its slab or span is not given back with it.
  void SetUp() override {
    for (void *&neighbour : before_) neighbour = malloc(GetParam());
    block_ = static_cast<char *>(malloc(GetParam()));
    for (void *&neighbour : after_) neighbour = malloc(GetParam());
    usable_ = malloc_usable_size(block_);
  }
  void TearDown() override {
    for (void *neighbour : before_) free(neighbour);
    for (void *neighbour : after_) free(neighbour);
  }

  bool is_small() const { return GetParam() <= kSmallMost; }

  // What a freed large block was is forgotten when its pages have merged with others or have gone
  // back to the system. That it is free, or no block, is as true.
  Message freed_twice(const void *block, size_t usable) const {
    return is_small() ? Message(Eq(double_free(block, usable))) : freed_with_all(block, usable);
  }
  Message freed_twice() const { return freed_twice(block_, usable_); }

  // The same for a block with which its whole slab was freed.
  Message freed_with_all(const void *block, size_t usable) const {
    return AnyOf(Eq(double_free(block, usable)), Eq(memory_is_free(block)), Eq(foreign(block)));
  }

  void *before_[4] = {};
  char *block_ = nullptr;
  void *after_[4] = {};
  size_t usable_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Sizes,
                         testing::Values(1, 8, 16, 40, 200, 1000, 1024, 3000, 10000, 33000,
                                         100 * kKiB, 200 * kKiB, kMiB, 5 * kMiB, 80 * kMiB),
                         [](const auto &size) { return std::to_string(size.param) + "_bytes"; });

void in_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, argument) != 0) _exit(1);
  pthread_join(thread, nullptr);
}
void *free_in_thread(void *block) {
  free(block);
  return nullptr;
}
void *free_twice_in_thread(void *block) {
  free(block);
  free(block);
  return nullptr;
}

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

// The owner is gone when its block is freed twice.
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
  const size_t usable = malloc_usable_size(orphan);
  EXPECT_FAULT({
    free(orphan);
    free(orphan);
  }, freed_twice(orphan, usable));
}

// Other blocks of its slab have come and gone, and the slab's bits have been claimed and collected,
// but this very block has not been handed out again: the double free is as certain as before.
TEST(Misuse, DoubleFreeAfterTheSlabWasReused) {
  static void *blocks[4000];
  for (void *&block : blocks) block = malloc(64);
  void *victim = blocks[2000];
  const size_t usable = malloc_usable_size(victim);
  EXPECT_FAULT({
    free(victim);
    for (int round = 0; round < 50; round++) {
      // Allocate until the victim's place is used, then give exactly that block back, last.
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

// Not a fault: the block was handed out again. It must not be taken for one.
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
    const size_t usable = malloc_usable_size(block);
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

// An aligned block is where memalign said, even if it lies inside what was carved for it.
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

// ---- pointers that are not ours ----------------------------------------------------------------

int g_global = 1;
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

// The same low half of the address, another high half; and before and behind the heap's memory.
TEST(Misuse, FreeOfPointersNearTheHeap) {
  char *block = static_cast<char *>(malloc(100));
  for (size_t distance : {size_t{1} << 32, size_t{1} << 36, size_t{1} << 40, size_t{1} << 47,
                          size_t{1} << 48, size_t{1} << 63}) {
    for (char *pointer : {opaque(block) + distance, opaque(block) - distance}) {
      EXPECT_FAULT(free(pointer), Eq(foreign(pointer))) << hex(pointer) << ", beside "
                                                        << hex(block);
    }
  }
  // Units that no block lies in: some unit of the neighbourhood is free, some are other blocks'.
  for (int unit = -2000; unit <= 2000; unit += 50) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(block) & ~uintptr_t{0xffff};
    char *pointer = reinterpret_cast<char *>(base) + unit * 65536 + 7;
    EXPECT_FAULT(free(pointer), testing::ContainsRegex("^cairn: [^\n]*" + hex(pointer) +
                                                       "[^\n]*\n$"));
  }
  free(block);
}

// In the libc's own heap, where a block looks like a block to the libc.
TEST(Misuse, FreeOfTheLibcsOwnBlock) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  auto *libc_malloc = reinterpret_cast<void *(*)(size_t)>(dlsym(libc, "malloc"));
  ASSERT_NE(libc_malloc, nullptr);
  void *block = libc_malloc(100);
  EXPECT_FAULT(free(block), Eq(foreign(block)));
}

// ---- freed blocks given to other calls ---------------------------------------------------------

TEST_P(Sizes, ReallocOfFreed) {
  for (size_t size : {size_t{1}, GetParam(), GetParam() * 2 + 100}) {
    EXPECT_FAULT({
      free(block_);
      opaque(realloc(block_, size));
    }, is_small() ? Message(Eq(realloc_of_freed(block_, usable_)))
                  : Message(testing::ContainsRegex("^cairn: realloc of [^\n]*" + hex(block_) +
                                                   "[^\n]*\n$")));
  }
}

TEST_P(Sizes, ReallocOfFreedByAnotherThread) {
  EXPECT_FAULT({
    in_thread(free_in_thread, block_);
    opaque(realloc(block_, GetParam() + 1));
  }, testing::ContainsRegex("^cairn: realloc of [^\n]*" + hex(block_) + "[^\n]*\n$"));
}

TEST_P(Sizes, UsableSizeOfFreed) {
  EXPECT_FAULT({
    free(block_);
    opaque(malloc_usable_size(block_));
  }, testing::ContainsRegex("^cairn: [^\n]*" + hex(block_) + "[^\n]*\n$"));
}

// ---- sizes that do not fit ---------------------------------------------------------------------

using FreeSized = void (*)(void *, size_t);
using FreeAlignedSized = void (*)(void *, size_t, size_t);
FreeSized free_sized_function() {
  return reinterpret_cast<FreeSized>(dlsym(RTLD_DEFAULT, "free_sized"));
}
FreeAlignedSized free_aligned_sized_function() {
  return reinterpret_cast<FreeAlignedSized>(dlsym(RTLD_DEFAULT, "free_aligned_sized"));
}

TEST(Misuse, TheSizedExampleOfTheManual) {
  FreeSized free_sized = free_sized_function();
  ASSERT_NE(free_sized, nullptr);
  void *block = malloc(40);
  EXPECT_FAULT(free_sized(block, 100), Eq(wrong_size(block, 100, 48)));
  free_sized(block, 40);
}

TEST_P(Sizes, FreeSizedWithAWrongSize) {
  FreeSized free_sized = free_sized_function();
  ASSERT_NE(free_sized, nullptr);
  for (size_t size : {GetParam() * 2 + 100, usable_ + 1, GetParam() / 3, SIZE_MAX}) {
    if (GetParam() <= 16 && size < GetParam()) continue;  // of the same class
    EXPECT_FAULT(free_sized(block_, size), Eq(wrong_size(block_, size, usable_)));
    EXPECT_FAULT(::operator delete(block_, size), Eq(wrong_size(block_, size, usable_)));
    EXPECT_FAULT(::operator delete[](block_, size), Eq(wrong_size(block_, size, usable_)));
  }
}

TEST_P(Sizes, FreeSizedWithTheRightSize) {
  FreeSized free_sized = free_sized_function();
  ASSERT_NE(free_sized, nullptr);
  free_sized(block_, GetParam());
  void *block = calloc(1, GetParam());
  free_sized(block, GetParam());
  block = realloc(malloc(1), GetParam());
  free_sized(block, GetParam());
  free_sized(nullptr, 10);
}

TEST_P(Sizes, DoubleFreeSized) {
  FreeSized free_sized = free_sized_function();
  ASSERT_NE(free_sized, nullptr);
  EXPECT_FAULT({
    free(block_);
    free_sized(block_, GetParam());
  }, freed_twice());
}

TEST(Misuse, FreeAlignedSized) {
  FreeAlignedSized free_aligned_sized = free_aligned_sized_function();
  ASSERT_NE(free_aligned_sized, nullptr);
  for (size_t alignment : {size_t{16}, size_t{64}, size_t{512}, size_t{4096}, 64 * kKiB}) {
    for (size_t size : {size_t{100}, size_t{3000}, size_t{70000}, 3 * kMiB}) {
      free_aligned_sized(aligned_alloc(alignment, size), alignment, size);
      free_aligned_sized(nullptr, alignment, size);
      char *block = static_cast<char *>(aligned_alloc(alignment, size));
      EXPECT_FAULT(free_aligned_sized(block, alignment, size * 8 + 10 * alignment),
                   testing::ContainsRegex("^cairn: [^\n]*" + hex(block) + "[^\n]*\n$"));
      EXPECT_FAULT({
        free(block);
        free_aligned_sized(block, alignment, size);
      }, testing::ContainsRegex("^cairn: [^\n]*" + hex(block) + "[^\n]*\n$"));
      free(block);
    }
  }
}

TEST(Misuse, AlignedDeleteWithAWrongSize) {
  void *block = ::operator new(100, std::align_val_t{64});
  EXPECT_FAULT(::operator delete(block, 1000, std::align_val_t{64}),
               testing::ContainsRegex("^cairn: [^\n]*" + hex(block) + "[^\n]*1000[^\n]*\n$"));
  ::operator delete(block, 100, std::align_val_t{64});
}

// ---- where and how -----------------------------------------------------------------------------

pthread_key_t g_key;

// After the thread's heap is gone: in the last round of destructors.
void fault_at_last(void *value) {
  static int rounds;
  if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(g_key, value);
    return;
  }
  free(value);
  free(value);
}

TEST(Misuse, InAThreadsLastDestructor) {
  ASSERT_EQ(pthread_key_create(&g_key, fault_at_last), 0);
  void *block = malloc(100);
  const size_t usable = malloc_usable_size(block);
  EXPECT_FAULT(in_thread([](void *argument) -> void * {
    free(malloc(100));
    pthread_setspecific(g_key, argument);
    return nullptr;
  }, block), Eq(double_free(block, usable)));
  free(block);
}

TEST(Misuse, InAThreadThatNeverUsedTheHeap) {
  void *block = malloc(100);
  EXPECT_FAULT(in_thread(free_in_thread, static_cast<char *>(block) + 16),
               Eq(interior(static_cast<char *>(block) + 16, block, malloc_usable_size(block))));
  free(block);
}

TEST(Misuse, InAForkedChild) {
  void *block = malloc(100);
  const size_t usable = malloc_usable_size(block);
  EXPECT_FAULT({
    const pid_t child = fork();
    if (child == 0) {
      free(block);
      free(block);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
      free(block);  // here it is the first time
      raise(SIGABRT);
    }
  }, Eq(double_free(block, usable)));
}

// The program may catch SIGABRT to leave a last word, and may want memory for it. What lay in the
// heap is as it was, the faulting block's neighbours first of all.
void *g_witnesses[600];
void *g_victim;

void inspect_heap(int) {
  for (unsigned i = 0; i < 600; i++) {
    if (g_witnesses[i] && !subject::holds(g_witnesses[i], 100, i)) _exit(70);
  }
  // And the heap still works: a fault takes no lock with it and leaves no structure half changed.
  for (size_t size : {size_t{100}, size_t{5000}, size_t{300000}, 10 * kMiB}) {
    void *block = malloc(size);
    if (!block || block == g_victim) _exit(71);
    memset(block, 1, size);
    for (void *witness : g_witnesses) {
      if (witness && block == witness) _exit(72);
    }
    free(block);
  }
  for (unsigned i = 0; i < 600; i++) {
    if (g_witnesses[i] && !subject::holds(g_witnesses[i], 100, i)) _exit(73);
    free(g_witnesses[i]);
  }
  _exit(42);
}

void witness_fault(const std::function<void(void *)> &fault) {
  for (unsigned i = 0; i < 600; i++) {
    g_witnesses[i] = malloc(100);
    subject::fill(g_witnesses[i], 100, i);
  }
  void *block = g_witnesses[300];
  g_witnesses[300] = nullptr;
  signal(SIGABRT, inspect_heap);
  fault(block);
  _exit(74);
}

TEST(Misuse, NothingIsHarmedFirst) {
  struct {
    const char *name;
    void (*fault)(void *);
  } const faults[] = {
      {"interior", [](void *block) { free(static_cast<char *>(block) + 16); }},
      {"neighbour's interior", [](void *) { free(static_cast<char *>(g_witnesses[301]) + 8); }},
      {"foreign", [](void *) { free(&g_global); }},
      {"remote interior", [](void *) {
         in_thread(free_in_thread, static_cast<char *>(g_witnesses[5]) + 16);
       }},
      {"realloc of interior", [](void *block) {
         opaque(realloc(static_cast<char *>(block) + 32, 10000));
       }},
      {"wrong size", [](void *block) { ::operator delete(block, size_t{4000}); }},
      {"double free", [](void *block) {
         free(block);
         free(block);
       }},
  };
  for (const auto &fault : faults) {
    SCOPED_TRACE(fault.name);
    EXPECT_EXIT(witness_fault(fault.fault), testing::ExitedWithCode(42),
                testing::MatchesRegex("cairn: [^\n]*\n"));
  }
}

// The message is written even if stderr is closed or full, in the sense that the abort comes.
TEST(Misuse, WithoutStderr) {
  EXPECT_EXIT({
    close(STDERR_FILENO);
    void *block = malloc(100);
    free(block);
    free(block);
  }, testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
