// vm.overcommit_memory=2: the kernel commits no more memory than it has, so that every private
// writable mapping counts in full, touched or not. A heap that reserves much of it does not start.
//
// The setting is that of the machine, not of a process. As root, the test sets it for about a
// second and restores it by a process of its own, which continues if the test is killed. The
// environment variable CAIRN_TEST_KEEP_SYSCTL forbids that. A limit on the data segment, which
// counts the same mappings, is tested in any case.

#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;

const char kSetting[] = "/proc/sys/vm/overcommit_memory";

bool write_setting(const char *value) {
  const int fd = open(kSetting, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, value, 1) == 1;
  close(fd);
  return written;
}

size_t meminfo_kib(const char *field) {
  char text[8192];
  subject::read_file("/proc/meminfo", text, sizeof text);
  const char *at = strstr(text, field);
  return at ? strtoull(at + strlen(field), nullptr, 10) : 0;
}

// The reason why the setting must not be changed here; NULL if it may.
const char *why_not() {
  if (getenv("CAIRN_TEST_KEEP_SYSCTL")) return "CAIRN_TEST_KEEP_SYSCTL is set";
  if (meminfo_kib("CommitLimit:") < meminfo_kib("Committed_AS:") + 2 * 1024 * 1024) {
    return "the machine has promised too much already for others to be safe";
  }
  return nullptr;
}

// Bytes that the kernel has committed for mappings without access.
size_t promised_for_nothing() {
  FILE *maps = fopen("/proc/self/smaps", "re");
  REQUIRE(maps != nullptr);
  char line[4096], permissions[5] = "";
  size_t from = 0, to = 0, total = 0;
  while (fgets(line, sizeof line, maps)) {
    size_t begin, end;
    if (sscanf(line, "%zx-%zx %4s", &begin, &end, permissions) == 3) from = begin, to = end;
    const bool is_nothing = strncmp(permissions, "---", 3) == 0;
    if (is_nothing && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " ac")) total += to - from;
  }
  fclose(maps);
  return total;
}

class StrictOvercommit {
 public:
  StrictOvercommit() {
    subject::read_file(kSetting, before_, sizeof before_);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    guard_ = fork();
    if (guard_ == 0) {
      // The pipe ends when the test ends, in any way.
      close(ends[1]);
      char byte;
      signal(SIGINT, SIG_IGN);
      signal(SIGTERM, SIG_IGN);
      while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
      }
      write_setting(before_);
      _exit(0);
    }
    close(ends[0]);
    pipe_ = ends[1];
    in_force_ = write_setting("2");
  }
  ~StrictOvercommit() {
    close(pipe_);
    waitpid(guard_, nullptr, 0);
  }
  bool in_force() const { return in_force_; }

 private:
  char before_[16] = "";
  pid_t guard_ = -1;
  int pipe_ = -1;
  bool in_force_ = false;
};

TEST(Overcommit, Never) {
  if (why_not()) GTEST_SKIP() << why_not();
  const size_t limit = meminfo_kib("CommitLimit:");
  StrictOvercommit strict;
  if (!strict.in_force()) {
    GTEST_SKIP() << kSetting << " cannot be set here; see UnderADataLimit for the stand-in";
  }
  const subject::Outcome outcome = subject::run_program({SMALL_PROGRAM, "threads"});
  EXPECT_EQ(outcome.end, "exit 0") << outcome.err;

  // A request beyond the commit limit fails with ENOMEM, and no signal follows.
  EXPECT_CHILD(250, [limit] {
    errno = 0;
    REQUIRE(malloc(limit * kKiB + kMiB) == nullptr && errno == ENOMEM);
    errno = 0;
    REQUIRE(calloc(limit, kKiB) == nullptr && errno == ENOMEM);
    void *block = malloc(100 * kMiB);
    REQUIRE(block != nullptr);
    free(block);
    // fork needs the same commitment once more.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  });
}

// Addresses of freed blocks stay inaccessible while their memory serves another block: nothing is
// committed for them.
TEST(Overcommit, FreedAddressesArePromisedLittle) {
  if (why_not()) GTEST_SKIP() << why_not();
  StrictOvercommit strict;
  if (!strict.in_force()) GTEST_SKIP() << kSetting << " cannot be set here";
  EXPECT_CHILD(250, [] {
    for (int i = 0; i < 200; i++) {
      char *block = static_cast<char *>(malloc(16 * kMiB));
      REQUIRE(block != nullptr);
      memset(block, 1, 16 * kMiB);
      subject::opaque(block);
      free(block);
    }
    REQUIRE(promised_for_nothing() < 100 * kMiB);
  });
}

// The threads use other shards in each run, so they commit other memory. Free pages must give way
// to pages that another shard lacks.
TEST(Overcommit, UnderADataLimit) {
  for (const char *threads : {"threads", "alone"}) {
    const subject::Outcome outcome =
        subject::run_program({SMALL_PROGRAM, threads}, nullptr, 100, [] {
          const struct rlimit limit = {64 * kMiB, 64 * kMiB};
          REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
        });
    EXPECT_EQ(outcome.end, "exit 0") << outcome.err;
  }
}

// The commitment of this process, which has done very little.
TEST(Overcommit, LittleIsPromisedAtStart) {
  EXPECT_LT(subject::status_field("VmData:"), 32 * 1024);
}

}  // namespace
