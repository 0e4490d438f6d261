// Locked memory. Under mlockall(MCL_FUTURE) every mapping is locked and counts towards
// RLIMIT_MEMLOCK, also reservations; and MADV_DONTNEED is refused, so purged memory does not become
// zero.

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;

// Gives up the privilege to lock more than the limit, which root has.
void drop_lock_privilege() {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {};
  REQUIRE(syscall(SYS_capget, &header, data) == 0);
  data[CAP_IPC_LOCK / 32].effective &= ~(1u << (CAP_IPC_LOCK % 32));
  data[CAP_IPC_LOCK / 32].permitted &= ~(1u << (CAP_IPC_LOCK % 32));
  REQUIRE(syscall(SYS_capset, &header, data) == 0);
}

size_t locked_kib() { return static_cast<size_t>(subject::status_field("VmLck:")); }

void require_zeroed_reuse() {
  for (size_t size : {size_t{100}, size_t{3000}, size_t{40000}, 200 * kKiB, 2 * kMiB}) {
    static void *blocks[100];
    const size_t count = size > kMiB ? 2 : size > 10000 ? 20 : 100;
    for (int round = 0; round < 3; round++) {
      size_t had = 0;
      while (had < count && (blocks[had] = malloc(size)) != nullptr) {
        memset(blocks[had++], 0xff, size);
      }
      REQUIRE(had > 0 || errno == ENOMEM);
      while (had) free(blocks[--had]);
      malloc_trim(0);
      while (had < count && (blocks[had] = calloc(1, size)) != nullptr) {
        REQUIRE(subject::is_zero(blocks[had], size));
        had++;
      }
      while (had) free(blocks[--had]);
    }
  }
}

// Without a limit: the memory that the heap makes the process lock, reservations included.
TEST(Locked, TotalIsBounded) {
  const std::string end = subject::in_child(100, [] {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) _exit(77);
    const size_t at_start = locked_kib();
    void *blocks[1000];
    for (size_t i = 0; i < 1000; i++) blocks[i] = malloc(i * 10);
    require_zeroed_reuse();
    fprintf(stderr, "locked: %zu KiB at first, %zu KiB later\n", at_start, locked_kib());
    REQUIRE(locked_kib() <= 256 * 1024);
    for (void *block : blocks) free(block);
  });
  if (end == "exit 77") GTEST_SKIP() << "mlockall is not permitted";
  EXPECT_EQ(end, "exit 0");
}

// Under a small limit small blocks can be allocated, then the result is NULL with ENOMEM, although
// the kernel answers EAGAIN.
void under_a_small_limit(size_t limit_bytes) {
  const struct rlimit limit = {limit_bytes, limit_bytes};
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  drop_lock_privilege();
  // Only new mappings count, not the existing ones.
  REQUIRE(mlockall(MCL_FUTURE) == 0);
  void *few[60];
  for (size_t i = 0; i < 60; i++) {
    const size_t size = i % 3 == 0 ? 16 : i % 3 == 1 ? 100 : 500;
    few[i] = malloc(size);
    REQUIRE(few[i] || (limit_bytes < kMiB && errno == ENOMEM));
    if (few[i]) memset(few[i], 1, size);
  }
  require_zeroed_reuse();
  static void *blocks[100000];
  size_t count = 0, counts[2];
  for (size_t &had : counts) {
    errno = 0;
    while (count < 100000 && (blocks[count] = malloc(3000)) != nullptr) {
      memset(blocks[count++], 2, 3000);
    }
    REQUIRE(count < 100000 && errno == ENOMEM);
    had = count;
    while (count) free(blocks[--count]);
  }
  REQUIRE(counts[1] >= counts[0] - counts[0] / 8);
  errno = 0;
  REQUIRE(malloc(subject::kGiB) == nullptr && errno == ENOMEM);
  for (void *block : few) free(block);
}

TEST(Locked, UnderASmallLimit) {
  for (size_t limit : {4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB}) {
    EXPECT_CHILD(250, [limit] {
      free(malloc(100));
      under_a_small_limit(limit);
    }) << limit;
  }
}

// The first use by a new thread whose stack exists already.
TEST(Locked, NewThreadsFirstUse) {
  EXPECT_CHILD(250, [] {
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 2);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
      pthread_barrier_wait(&barrier);
      for (size_t size : {size_t{100}, size_t{5000}, size_t{300000}}) {
        errno = 0;
        void *block = calloc(1, size);
        REQUIRE(block ? subject::is_zero(block, size) : errno == ENOMEM);
        free(block);
      }
      return nullptr;
    }, nullptr) == 0);
    const struct rlimit limit = {64 * kKiB, 64 * kKiB};
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    drop_lock_privilege();
    REQUIRE(mlockall(MCL_FUTURE) == 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, nullptr);
  });
}

// A small program locks little memory, before its first block and after it: reservations count.
TEST(Locked, ASmallProgramLocksLittle) {
  for (const char *when : {"before", "after"}) {
    const subject::Outcome outcome = subject::run_program({LOCKED_PROGRAM, "0", when});
    if (outcome.end == "exit 77") GTEST_SKIP() << "mlockall is not permitted";
    EXPECT_EQ(outcome.end, "exit 0") << outcome.err;
    EXPECT_LE(strtol(outcome.out.c_str(), nullptr, 10), 16 * 1024) << when;
  }
}

// A user may lock 8 MiB by default.
TEST(Locked, ASmallProgramWorksWithinTheUsualLimit) {
  for (const char *when : {"before", "after"}) {
    const subject::Outcome outcome = subject::run_program({LOCKED_PROGRAM, "8192", when});
    if (outcome.end == "exit 77") GTEST_SKIP() << "mlockall is not permitted";
    EXPECT_EQ(outcome.end, "exit 0") << when << ": " << outcome.err;
    EXPECT_LE(strtol(outcome.out.c_str(), nullptr, 10), 8 * 1024) << when;
  }
}

// A program locks a few of its blocks, which hold secrets, and frees them with all others while
// they are locked: the kernel refuses to purge a range with such a page.
TEST(Locked, AFewLockedPagesHoldBackNothingElse) {
  const std::string end = subject::in_child(100, [] {
    static char *blocks[1000];
    const long before = subject::rss_kib();
    for (size_t i = 0; i < 1000; i++) {
      blocks[i] = static_cast<char *>(malloc(100000));
      REQUIRE(blocks[i]);
      memset(blocks[i], 1, 100000);
      if (i % 200 == 100 && mlock(blocks[i] + 8192, 100) != 0) _exit(77);
    }
    for (char *block : blocks) free(block);
    malloc_trim(0);
    fprintf(stderr, "%ld KiB before, %ld after\n", before, subject::rss_kib());
    REQUIRE(subject::rss_kib() < before + 4 * 1024);
  });
  if (end == "exit 77") GTEST_SKIP() << "mlock is not permitted";
  EXPECT_EQ(end, "exit 0");
}

struct Program {
  const char *name;
  const char *what;
  const char *script;
  const char *expected;
};

// The small programs are locked as a whole; the others are larger than the limit, so only their
// later mappings are.
const Program kPrograms[] = {
    {"sh", "all", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); s=$i; done; echo $s", "3000\n"},
    {"sed", "future", "seq 1 400 | sed -n -e 's/7/seven/g' -e '/seven/p' | tail -n 1", "39seven\n"},
    {"grep", "future", "seq 1 2000 | grep -c '[13]7'", "178\n"},
    {"sort", "future", "seq 1 3000 | sort --buffer-size=1M -r -n | head -n 1", "3000\n"},
    {"perl", "future",
     "perl -e 'my %h; $h{$_ % 300} .= $_ for 1..6000; print scalar(keys %h), qq(\\n)'", "300\n"},
};

TEST(Locked, RealProgramsWorkWithinTheUsualLimit) {
  const char *preload = getenv("LD_PRELOAD");
  for (const Program &program : kPrograms) {
    if (subject::run_program({"sh", "-c", std::string("command -v ") + program.name}).end !=
        "exit 0") {
      continue;
    }
    const std::string libraries = std::string(LOCKER) + (preload ? ":" : "") +
                                  (preload ? preload : "");
    const subject::Outcome outcome = subject::run_program(
        {"env", "LD_PRELOAD=" + libraries, std::string("CAIRN_TEST_LOCK=") + program.what, "sh",
         "-c", program.script});
    if (outcome.end == "exit 77") GTEST_SKIP() << "mlockall is not permitted";
    EXPECT_EQ(outcome.end, "exit 0") << program.name << ": " << outcome.err;
    EXPECT_EQ(outcome.out, program.expected) << program.name << ": " << outcome.err;
  }
}

}  // namespace
