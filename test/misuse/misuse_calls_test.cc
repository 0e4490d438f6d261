// Misuse of calls other than free, and misuse in special states of a thread or process.
// misuse_test.cc tests misuse of free.
#include "fault.h"

namespace {

using namespace fault;

INSTANTIATE_SIZES();

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
    if (GetParam() <= 16 && size < GetParam()) continue;  // a smaller size in the same class
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

// Runs after the thread's heap has ended: in the last round of destructors.
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
  const size_t usable = block_size(block);
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
               Eq(interior(static_cast<char *>(block) + 16, block, block_size(block))));
  free(block);
}

TEST(Misuse, InAForkedChild) {
  void *block = malloc(100);
  const size_t usable = block_size(block);
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
      free(block);  // the block is not free in this process
      raise(SIGABRT);
    }
  }, Eq(double_free(block, usable)));
}

// A program may catch SIGABRT to write a last message, and may allocate for it. The content of the
// heap must be unchanged, first of all in the neighbours of the block.
void *g_witnesses[600];
void *g_victim;

void inspect_heap(int) {
  for (unsigned i = 0; i < 600; i++) {
    if (g_witnesses[i] && !subject::holds(g_witnesses[i], 100, i)) _exit(70);
  }
  // The heap must still work: a report holds no lock and leaves no structure half changed.
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

// The abort also happens when stderr is closed or full.
TEST(Misuse, WithoutStderr) {
  EXPECT_EXIT({
    close(STDERR_FILENO);
    void *block = malloc(100);
    free(block);
    free(block);
  }, testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
