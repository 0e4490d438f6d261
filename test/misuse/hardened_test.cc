// Misuse that only the hardened libraries find, in a program that does not know of them. Cases that
// need a full build are skipped in light builds.

#include "fault.h"

#include <unistd.h>
#include <algorithm>
#include <thread>
#include <vector>

namespace {

using namespace fault;

bool is_full() { return strcmp(getenv("CAIRN_TEST_HARDENED"), "full") == 0; }

std::string overflow(void *block) {
  return "cairn: overflow of " + hex(block) + " (" + block_of(block_size(block)) + ")\n";
}

// Whether the process can read the byte: a system call fails where an access would trap.
bool is_readable(const char *at) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool readable = write(ends[1], at, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

class Hardened : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!getenv("CAIRN_TEST_HARDENED")) GTEST_SKIP() << "this malloc is not hardened";
    block_ = static_cast<char *>(malloc(GetParam()));
  }
  void TearDown() override { free(block_); }

  bool is_large() const { return GetParam() > 32 * kKiB - 8; }

  char *block_ = nullptr;
};

// An overflow of any length is reported when the block is freed, or traps at once. Bytes behind the
// last block of a slab trap, so the case uses another block.
TEST_P(Hardened, Overflow) {
  std::vector<char *> last;
  while (!is_large() && !is_readable(block_ + GetParam() + 31)) {
    last.push_back(block_);
    block_ = static_cast<char *>(malloc(GetParam()));
  }
  for (char *block : last) free(block);
  for (size_t length : {1, 8, 32}) {
    if (is_large()) break;  // all bytes of its last page are usable
    for (int value : {0, 0x41}) {
      EXPECT_FAULT({
        for (size_t i = 0; i < length; i++) {
          char &byte = opaque(block_)[GetParam() + i];
          byte = byte == value ? static_cast<char>(value + 1) : static_cast<char>(value);
        }
        free(block_);
      }, Eq(overflow(block_))) << length;
    }
  }
  EXPECT_EXIT({
    volatile char *at = opaque(block_);
    for (size_t i = 0; i < kMiB + 64 * kKiB; i++) at[GetParam() + i] = 1;
  }, testing::KilledBySignal(SIGSEGV), "");
}

TEST_P(Hardened, OverflowFreedByAnotherThread) {
  if (is_large()) return;
  EXPECT_FAULT({
    opaque(block_)[GetParam()]++;
    in_thread(free_in_thread, block_);
  }, Eq(overflow(block_)));
}

TEST_P(Hardened, OverflowSeenByRealloc) {
  if (is_large()) return;
  EXPECT_FAULT({
    opaque(block_)[GetParam()]++;
    opaque(realloc(block_, GetParam() * 3 + 1000));
  }, Eq(overflow(block_)));
}

// An underflow damages the block before.
TEST_P(Hardened, UnderflowDamagesTheBlockBefore) {
  if (is_large()) return;
  std::vector<char *> blocks(600);
  for (char *&block : blocks) block = static_cast<char *>(malloc(GetParam()));
  const size_t distance = block_size(blocks[0]);
  std::vector<char *> sorted = blocks;
  std::sort(sorted.begin(), sorted.end());
  char *before = nullptr;
  for (size_t i = 1; i < sorted.size() && !before; i++)
    if (sorted[i - 1] + distance == sorted[i]) before = sorted[i - 1];
  ASSERT_NE(before, nullptr);
  EXPECT_FAULT({
    opaque(before)[distance - 1]++;
    free(before);
  }, Eq(overflow(before)));
  for (char *block : blocks) free(block);
}

TEST_P(Hardened, WriteAfterFree) {
  if (!is_full()) GTEST_SKIP() << "full builds only";
  const size_t size = GetParam();
  if (is_large()) {
    EXPECT_EXIT({
      free(block_);
      *static_cast<volatile char *>(block_) = 1;
    }, testing::KilledBySignal(SIGSEGV), "");
    return;
  }
  const std::string expected =
      "cairn: write after free to " + hex(block_) + " (" + block_of(block_size(block_)) + ")\n";
  EXPECT_FAULT({
    free(block_);
    opaque(block_)[size / 2] = 1;
    for (int i = 0; i < 100000; i++) {
      static void *others[300];
      free(others[i % 300]);
      others[i % 300] = malloc(size);
    }
  }, Eq(expected));
}

TEST_P(Hardened, ReadAfterFreeIsZeroOrTraps) {
  if (!is_full()) GTEST_SKIP() << "full builds only";
  memset(block_, 0x55, GetParam());
  const auto read_all = [this] {
    free(block_);
    for (size_t i = 0; i < GetParam(); i++)
      if (const_cast<volatile char *>(block_)[i] != 0) _exit(1);
    _exit(42);
  };
  if (is_large())
    EXPECT_EXIT(read_all(), testing::KilledBySignal(SIGSEGV), "");
  else
    EXPECT_EXIT(read_all(), testing::ExitedWithCode(42), "");
}

TEST_P(Hardened, MallocReadsZero) {
  if (!is_full()) GTEST_SKIP() << "full builds only";
  for (int i = 0; i < 300; i++) {
    char *block = static_cast<char *>(malloc(GetParam()));
    ASSERT_TRUE(subject::is_zero(block, GetParam()));
    memset(block, 0x55, GetParam());
    free(block);
  }
}

TEST_P(Hardened, ABlockIsNotReusedAtOnce) {
  if (!is_full()) GTEST_SKIP() << "full builds only";
  int same = 0;
  for (int i = 0; i < 200; i++) {
    void *block = malloc(GetParam());
    free(block);
    void *next = malloc(GetParam());
    same += block == next;
    free(next);
  }
  EXPECT_LT(same, 60);
}

TEST_P(Hardened, DoubleFreeInQuarantine) {
  const size_t size = block_size(block_);
  EXPECT_FAULT({
    free(block_);
    for (int i = 0; i < 10; i++) free(malloc(GetParam()));
    free(block_);
  }, is_large() ? Message(testing::StartsWith("cairn: double free of " + hex(block_)))
                : Message(Eq(double_free(block_, size)))) << "at " << size;
}

TEST_P(Hardened, TheExactSizeCounts) {
  if (is_large()) return;
  EXPECT_EQ(malloc_usable_size(block_), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, Hardened,
                         testing::Values(1, 8, 24, 40, 100, 1000, 5000, 33000, 200 * kKiB),
                         [](const auto &size) { return std::to_string(size.param) + "_bytes"; });

// Blocks of 0 bytes, from every function that returns one.
class ZeroSizeBlock : public testing::TestWithParam<void *(*)()> {
 protected:
  void SetUp() override {
    if (!getenv("CAIRN_TEST_HARDENED") || !is_full()) GTEST_SKIP() << "full builds only";
    for (char *&block : blocks_) block = static_cast<char *>(GetParam()());
    block_ = blocks_[50];
  }
  void TearDown() override {
    for (char *block : blocks_) free(block);
  }

  char *blocks_[100] = {};
  char *block_ = nullptr;
};

TEST_P(ZeroSizeBlock, EveryAccessTraps) {
  EXPECT_EXIT(*static_cast<volatile char *>(block_) = 1, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(opaque(*static_cast<volatile char *>(block_)), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT({
    free(block_);
    *static_cast<volatile char *>(block_) = 1;
  }, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(malloc_usable_size(block_), 0u);
}

TEST_P(ZeroSizeBlock, WrongFrees) {
  const size_t size = block_size(block_);
  EXPECT_FAULT({
    free(block_);
    free(block_);
  }, Eq(double_free(block_, size)));
  EXPECT_FAULT({
    in_thread(free_in_thread, block_);
    free(block_);
  }, Eq(double_free(block_, size)));
  EXPECT_FAULT({
    free(block_);
    in_thread(free_in_thread, block_);
  }, Eq(double_free(block_, size)));
  EXPECT_FAULT(free(block_ + 16), Eq(interior(block_ + 16, block_, size)));
  EXPECT_FAULT(::operator delete(block_, size_t{16}), Eq(wrong_size(block_, 16, size)));
  EXPECT_FAULT({
    free(block_);
    opaque(realloc(block_, 10));
  }, Eq(realloc_of_freed(block_, size)));
}

TEST_P(ZeroSizeBlock, GrowsAndIsFreedInAnotherThread) {
  char *block = static_cast<char *>(realloc(GetParam()(), 100));
  memset(block, 1, 100);
  EXPECT_EQ(malloc_usable_size(block), 100u);
  free(block);
  in_thread(free_in_thread, GetParam()());
  ::operator delete(GetParam()(), size_t{0});
}

const char *name_of_form(size_t index) {
  static const char *const names[] = {"malloc", "calloc", "realloc", "aligned_alloc", "new"};
  return names[index];
}

INSTANTIATE_TEST_SUITE_P(
    Forms, ZeroSizeBlock,
    testing::Values([] { return opaque(malloc(0)); }, [] { return opaque(calloc(0, 8)); },
                    [] { return opaque(realloc(nullptr, 0)); },
                    [] { return opaque(aligned_alloc(64, 0)); },
                    [] { return opaque(::operator new(0)); }),
    [](const auto &form) { return name_of_form(form.index); });

// Without quarantine the slab is released with its last block, during the collection of that block.
TEST(HardenedThreads, TheLastBlocksOfAnEndedThreadMayBeFreedByOthers) {
  for (size_t size : {16, 100, 3000}) {
    for (int count = 1; count < 20; count++) {
      std::vector<void *> blocks;
      std::thread other([&] {
        for (int i = 0; i < count; i++) blocks.push_back(malloc(size));
      });
      other.join();
      for (void *block : blocks) free(block);
    }
  }
}

}  // namespace
