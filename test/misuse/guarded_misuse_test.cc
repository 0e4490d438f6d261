// Misuse of guarded blocks (CAIRN_OPTIONS=guard:20), which are between guard pages: an access next
// to the block or after its free traps, and each report names both stacks.
#include "fault.h"

namespace {

using namespace fault;

constexpr size_t kSize = 90;      // the usable size of a guarded block is the requested one
constexpr ptrdiff_t kBehind = 96;  // first byte of the guard page, for an alignment of 16

// qemu-user before 8.1 does not report whether an access was a read or a write.
const std::string kWrite = CAIRN_TEST_EMULATED ? "(access|write)" : "write";
const std::string kRead = CAIRN_TEST_EMULATED ? "(access|read)" : "read";

std::string stack(const char *what) {
  return std::string("cairn:   ") + what + " by thread [0-9]+:\n(cairn:     0x[0-9a-f]+[^\n]*\n)+";
}
std::string frame_of(const char *what, const char *file) {
  return std::string("cairn:   ") + what + " by thread [0-9]+:\n(cairn:     [^\n]*\n)*cairn:     "
         "0x[0-9a-f]+ [^\n]*" + file + "\\+0x[0-9a-f]+\n";
}
testing::PolymorphicMatcher<testing::internal::MatchesRegexMatcher> report(
    const std::string &first, bool freed) {
  return testing::ContainsRegex("^cairn: " + first + "\n" + stack("allocated") +
                                (freed ? stack("freed") : "") + stack("misused") + "$");
}

// Makes a block at the right end of its pages, so that the first byte behind it traps.
char *make_right() {
  for (int i = 0; i < 5000; i++) {
    char *block = static_cast<char *>(malloc(kSize));
    if (malloc_usable_size(block) == kSize &&
        (reinterpret_cast<uintptr_t>(block) + kBehind) % 4096 == 0) {
      return block;
    }
    free(block);
  }
  return nullptr;
}

#define EXPECT_TRAP(statement, expected) \
  EXPECT_EXIT(statement, testing::KilledBySignal(SIGSEGV), expected)

class Guarded : public testing::Test {
 protected:
  void SetUp() override {
    block_ = make_right();
    if (getpagesize() != 4096) GTEST_SKIP() << "the addresses of blocks assume small pages";
    ASSERT_NE(block_, nullptr) << "no block is guarded";
    bytes_ = block_;
  }
  void TearDown() override { free(block_); }

  std::string at(ptrdiff_t offset) const { return hex(block_ + offset); }
  std::string beside() const { return " a 90-byte block at " + hex(block_); }
  std::string within() const { return " \\(90-byte block at " + hex(block_) + "\\)"; }

  char *block_ = nullptr;
  volatile char *bytes_ = nullptr;
};

TEST_F(Guarded, Overflow) {
  EXPECT_TRAP(bytes_[kBehind] = 1,
              report("overflow: " + kWrite + " of " + at(96) + ", 6 bytes behind" + beside(),
                     false));
  EXPECT_TRAP(opaque(bytes_[kBehind + 8]),
              report("overflow: " + kRead + " of " + at(104) + ", 14 bytes behind" + beside(),
                     false));
}

TEST_F(Guarded, Underflow) {
  EXPECT_TRAP(bytes_[-5000] = 1,
              report("underflow: " + kWrite + " of " + at(-5000) + ", 5000 bytes before" + beside(),
                     false));
}

TEST_F(Guarded, UseAfterFree) {
  EXPECT_TRAP((free(block_), opaque(bytes_[3])),
              report("use after free: " + kRead + " of " + at(3) + within(), true));
  EXPECT_TRAP((free(block_), bytes_[89] = 1),
              report("use after free: " + kWrite + " of " + at(89) + within(), true));
}

TEST_F(Guarded, UseAfterFreeLongAgo) {
  EXPECT_TRAP({
    free(block_);
    for (int i = 0; i < 10; i++) free(malloc(kSize));
    bytes_[0] = 1;
  }, report("use after free: " + kWrite + " of " + at(0) + within(), true));
}

TEST_F(Guarded, FreeOfAllKinds) {
  EXPECT_FAULT((free(block_), free(block_)),
               report("double free of " + at(0) + " \\(90-byte block\\)", true));
  EXPECT_FAULT(free(block_ + 16), report("free of interior pointer " + at(16) + within(), false));
  EXPECT_FAULT((free(block_), opaque(realloc(block_, 10))),
               report("realloc of freed block " + at(0) + " \\(90-byte block\\)", true));
  EXPECT_FAULT((bytes_[-1] = 1, free(block_)),
               report("underflow of " + at(0) + " \\(90-byte block\\): " + at(-1) +
                      " was written, found by free", false));
  EXPECT_FAULT(::operator delete(block_, opaque(size_t{91})),
               Eq(wrong_size(block_, 91, kSize)));
}

TEST_F(Guarded, TheStacksNameTheProgram) {
  EXPECT_TRAP((free(block_), bytes_[0] = 1),
              testing::ContainsRegex(frame_of("allocated", "guarded_misuse_test[a-z_]*")));
}

TEST_F(Guarded, InThreads) {
  EXPECT_FAULT((in_thread(free_in_thread, block_), in_thread(free_in_thread, block_)),
               report("double free of " + at(0) + " \\(90-byte block\\)", true));
  EXPECT_TRAP({
    in_thread(free_in_thread, block_);
    in_thread([](void *block) -> void * { return static_cast<char **>(block)[1]; }, block_);
  }, report("use after free: " + kRead + " of " + at(8) + within(), true));
}

TEST_F(Guarded, InAForkedChild) {
  EXPECT_TRAP({
    const pid_t child = fork();
    if (child == 0) {
      free(block_);
      bytes_[0] = 1;
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bytes_[0] = 1;  // the block is not free in this process
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) raise(SIGSEGV);
  }, report("use after free: " + kWrite + " of " + at(0) + within(), true));
}

// The handler of the program, set before or after that of Cairn, gets the fault as well.
TEST_F(Guarded, AHandlerOfTheProgramIsCalled) {
  EXPECT_EXIT({
    signal(SIGSEGV, [](int) { _exit(42); });
    free(block_);
    bytes_[0] = 1;
  }, testing::ExitedWithCode(42), "");
}

}  // namespace
