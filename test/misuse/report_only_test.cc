// Invalid frees with CAIRN_OPTIONS=on_error:report: the usual lines, and then the program continues
// with everything as it was before the free.
#include "fault.h"

#include <vector>

namespace {

using namespace fault;

INSTANTIATE_SIZES();

constexpr size_t kMost = 100;  // lines until invalid frees are only counted

// The statement is refused: the process continues and exits by itself, with these lines on stderr.
#define EXPECT_REFUSED(statement, expected) \
  EXPECT_EXIT({ statement; _exit(0); }, testing::ExitedWithCode(0), expected)

// Ends the process if a block of this size is handed out twice, or its content changes.
void check_blocks(size_t size) {
  std::vector<char *> blocks(size > kMiB ? 8 : 300);
  for (size_t i = 0; i < blocks.size(); i++) {
    blocks[i] = static_cast<char *>(malloc(size));
    blocks[i][0] = static_cast<char>(i);
    blocks[i][size - 1] = static_cast<char>(i);
  }
  for (size_t i = 0; i < blocks.size(); i++) {
    if (blocks[i][size - 1] != static_cast<char>(i)) _exit(2);
    free(blocks[i]);
  }
}

TEST_P(Sizes, ADoubleFree) {
  EXPECT_REFUSED({
    free(block_);
    free(block_);
    check_blocks(GetParam());
  }, freed_twice());
}

TEST_P(Sizes, ADoubleFreeByAnotherThread) {
  EXPECT_REFUSED({
    free(block_);
    in_thread(free_in_thread, block_);
    check_blocks(GetParam());
  }, freed_twice());
}

TEST_P(Sizes, AnotherThreadsDoubleFree) {
  EXPECT_REFUSED({
    in_thread(free_twice_in_thread, block_);
    check_blocks(GetParam());
  }, freed_twice());
}

TEST_P(Sizes, TheOwnersFreeAfterAnotherThreads) {
  EXPECT_REFUSED({
    in_thread(free_in_thread, block_);
    free(block_);
    check_blocks(GetParam());
  }, freed_twice());
}

TEST_P(Sizes, AFreeOfAnInteriorPointerLeavesTheBlock) {
  EXPECT_REFUSED({
    memset(block_, 'x', GetParam());
    free(block_ + 1);
    check_blocks(GetParam());
    for (size_t i = 0; i < GetParam(); i++)
      if (block_[i] != 'x') _exit(3);
    free(block_);
  }, Eq(interior(block_ + 1, block_, usable_)));
}

TEST_P(Sizes, ManyTimesTheSame) {
  EXPECT_REFUSED({
    free(block_);
    for (size_t i = 0; i < kMost + 50; i++) free(block_);
    check_blocks(GetParam());
  }, testing::Truly([](const std::string &text) {
    const std::string last = "cairn: 100 wrong frees were refused; from here on they are only "
                             "counted\n";
    return std::count(text.begin(), text.end(), '\n') == kMost + 1 &&
           text.substr(text.size() - last.size()) == last;
  }));
}

TEST(ReportOnly, AForeignPointer) {
  static char place[64];
  EXPECT_REFUSED({
    free(opaque(place + 16));
    check_blocks(64);
  }, Eq(foreign(place + 16)));
}

// Only frees are refused: a program cannot continue without the result of other calls.
TEST_P(Sizes, AReallocOfAFreedBlockEndsTheProcess) {
  EXPECT_EXIT({
    free(block_);
    free(realloc(block_, GetParam() * 2));
  }, testing::KilledBySignal(SIGABRT), testing::StartsWith("cairn: realloc of "));
}

// Blocks of up to 8 bytes are in packed slabs once there are many.
TEST(ReportOnly, TheSmallestBlocks) {
  static std::vector<char *> blocks(300000);
  for (char *&block : blocks) block = static_cast<char *>(malloc(8));
  EXPECT_REFUSED({
    char *last = blocks.back();
    char *first = blocks[blocks.size() / 2];
    free(last);
    free(last);
    free(first);
    free(first);
    in_thread(free_in_thread, last);
    in_thread(free_in_thread, first);
    in_thread(free_twice_in_thread, blocks[blocks.size() / 2 + 1]);
    free(blocks[7] + 1);
    check_blocks(8);
  }, testing::MatchesRegex("(cairn: double free of 0x[0-9a-f]+ \\((8|16)-byte block\\)\n){5}"
                           "cairn: free of interior pointer[^\n]*\n"));
  for (char *block : blocks) free(block);
}

TEST(ReportOnly, ASizedFreeWithAWrongSize) {
  using FreeSized = void (*)(void *, size_t);
  const auto free_sized = reinterpret_cast<FreeSized>(dlsym(RTLD_DEFAULT, "free_sized"));
  if (!free_sized) GTEST_SKIP() << "no free_sized";
  char *block = static_cast<char *>(malloc(100));
  EXPECT_REFUSED({
    free_sized(block, 3000);
    free(block);
  }, Eq(wrong_size(block, 3000, malloc_usable_size(block))));
  free(block);
}

}  // namespace
