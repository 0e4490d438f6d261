// A kernel that refuses system calls, as a sandbox does: a seccomp filter answers madvise, mremap,
// mprotect, mmap, munmap and others with EPERM, EINVAL, EAGAIN, ENOSYS or ENOMEM, from the start of
// a program or from the middle of it. Without mmap or mprotect the heap cannot grow and must return
// NULL with ENOMEM. Without the other calls nothing may fail.

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <string>
#include <vector>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;

struct Refused {
  const char *name;
  int call;
};

// The filter checks the number only; the architecture is that of this program.
void report_misuse(int call, int error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof code / sizeof code[0], code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Refuses mappings without access, which are reservations of address space.
void refuse_reservations(int error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(SYS_mmap), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_NONE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof code / sizeof code[0], code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Any call that is neither for memory nor for the end of the program ends the process at once, like
// the sandboxes of browsers and servers.
void allow_memory_only() {
  constexpr unsigned kAllowed[] = {SYS_mmap,   SYS_munmap, SYS_mremap,        SYS_mprotect,
                                   SYS_madvise, SYS_futex,  SYS_clock_gettime, SYS_exit_group,
                                   SYS_write,   SYS_prctl};  // prctl names mappings
  std::vector<struct sock_filter> code = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (const unsigned call : kAllowed) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const struct sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

bool can_filter() {
  return subject::in_child(100, [] {
    report_misuse(SYS_getppid, EPERM);
    errno = 0;
    REQUIRE(syscall(SYS_getppid) == -1 && errno == EPERM);
  }) == "exit 0";
}

const int kErrors[] = {EPERM, EINVAL, EAGAIN, ENOSYS, ENOMEM, EINTR};

// Uses every size and kind of block and checks contents. Failures are allowed only with `may_fail`.
void exercise(bool may_fail) {
  constexpr int kSlots = 120;
  static unsigned char *slots[kSlots];
  static size_t sizes[kSlots];
  unsigned state = 99;
  for (int i = 0; i < 12000; i++) {
    state = state * 1664525 + 1013904223;
    const size_t at = (state >> 16) % kSlots;
    if (slots[at]) {
      const unsigned char mark = static_cast<unsigned char>(at + 1);
      REQUIRE(slots[at][0] == mark && slots[at][sizes[at] - 1] == mark);
    }
    const unsigned kind = state >> 25;
    size_t size = kind == 0  ? 4 * kMiB
                  : kind < 4 ? 200 * kKiB
                  : kind < 16 ? (state >> 6) % 60000
                              : (state >> 6) % 2000;
    size++;
    errno = 0;
    unsigned char *block;
    if (kind % 4 == 1) {
      block = static_cast<unsigned char *>(realloc(slots[at], size));
      if (block && slots[at]) {
        REQUIRE(block[0] == static_cast<unsigned char>(at + 1));
      }
      if (!block) {
        REQUIRE(may_fail && errno == ENOMEM);
        continue;  // and keep the old block
      }
    } else {
      free(slots[at]);
      slots[at] = nullptr;
      REQUIRE(errno == 0);
      block = static_cast<unsigned char *>(kind % 4 == 2   ? calloc(size, 1)
                                           : kind % 4 == 3 ? memalign(4096, size)
                                                           : malloc(size));
      if (!block) {
        REQUIRE(may_fail && errno == ENOMEM);
        continue;
      }
      if (kind % 4 == 2) REQUIRE(subject::is_zero(block, size));
    }
    memset(block, static_cast<int>(at + 1), size);
    slots[at] = block;
    sizes[at] = size;
    if (i % 3000 == 2999) malloc_trim(0);
  }
  for (unsigned char *&slot : slots) {
    free(slot);
    slot = nullptr;
  }
}

// Allocates small, medium and large blocks until the heap asks for huge pages.
void grow_large() {
  constexpr size_t kBytes = 200 * kMiB;
  const size_t size_of[] = {100, 900, 3000, 20000, 200 * kKiB, 40 * kMiB};
  static void *newest;
  for (const size_t size : size_of) {
    for (size_t sum = 0; sum < kBytes; sum += size) {
      void **block = static_cast<void **>(malloc(size));
      REQUIRE(block != nullptr);
      memset(block, 1, size);
      *block = newest;
      newest = block;
    }
    while (newest) {
      void *before = *static_cast<void **>(newest);
      free(newest);
      newest = before;
    }
  }
}

class Refusal : public testing::TestWithParam<Refused> {};

// The filter is inherited by exec, so it works from the start. Only calls that the dynamic linker
// does not need can be refused.
class RefusalFromTheStart : public Refusal {};

TEST_P(RefusalFromTheStart, NothingFails) {
  if (!can_filter()) GTEST_SKIP() << "no seccomp filter can be installed here";
  for (int error : kErrors) {
    const subject::Outcome outcome =
        subject::run_program({SMALL_PROGRAM, "threads"}, nullptr, 100,
                             [error] { report_misuse(GetParam().call, error); });
    EXPECT_EQ(outcome.end, "exit 0") << strerrorname_np(error) << ": " << outcome.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, RefusalFromTheStart,
    testing::Values(Refused{"madvise", SYS_madvise}, Refused{"mremap", SYS_mremap},
                    Refused{"prctl", SYS_prctl}, Refused{"munmap", SYS_munmap},
                    Refused{"mincore", SYS_mincore}, Refused{"getrandom", SYS_getrandom},
                    Refused{"membarrier", SYS_membarrier}, Refused{"brk", SYS_brk},
                    Refused{"sched_getaffinity", SYS_sched_getaffinity},
                    Refused{"clock_gettime", SYS_clock_gettime},
                    Refused{"sysinfo", SYS_sysinfo}, Refused{"mbind", SYS_mbind}),
    [](const testing::TestParamInfo<Refused> &of) { return of.param.name; });

TEST(Refusal, OfReservationsFromTheStart) {
  if (!can_filter()) GTEST_SKIP() << "no seccomp filter can be installed here";
  // The libc reserves thread stacks and its own arenas in the same way, so the program has no
  // threads.
  for (int error : kErrors) {
    const subject::Outcome outcome = subject::run_program(
        {SMALL_PROGRAM}, nullptr, 100, [error] { refuse_reservations(error); });
    EXPECT_TRUE(outcome.end == "exit 0" ||
                outcome.err == "small_program: malloc failed (errno 12)\n" ||
                outcome.err == "small_program: calloc failed (errno 12)\n")
        << strerrorname_np(error) << ": " << outcome.end << ' ' << outcome.err;
  }
}

TEST(Refusal, OfAllThatIsNotForMemory) {
  if (!can_filter()) GTEST_SKIP() << "no seccomp filter can be installed here";
  EXPECT_CHILD(250, [] {
    free(malloc(1));
    allow_memory_only();
    exercise(false);
    grow_large();
  });
}

// The filter is installed while blocks of all kinds exist, half of them freed.
TEST_P(Refusal, InTheMiddle) {
  if (!can_filter()) GTEST_SKIP() << "no seccomp filter can be installed here";
  const int call = GetParam().call;
  // The heap cannot grow without these calls.
  const bool may_fail = call == SYS_mmap || call == SYS_mprotect;
  for (int error : kErrors) {
    EXPECT_CHILD(250, [=] {
      static void *blocks[3000];
      size_t size_of[4] = {100, 3000, 50000, 300 * kKiB};
      for (size_t i = 0; i < 3000; i++) {
        const size_t size = size_of[i % 100 == 0 ? 3 : i % 10 == 0 ? 2 : i % 2];
        blocks[i] = malloc(size);
        memset(blocks[i], 0xee, size);
      }
      for (size_t i = 0; i < 3000; i += 2) free(blocks[i]);
      report_misuse(call, error);
      exercise(may_fail);
      for (size_t i = 1; i < 3000; i += 2) free(blocks[i]);
      malloc_trim(0);
      // Nothing is lost: the freed memory can be allocated again, although the system gives none.
      // (A trim may have made it inaccessible where mprotect is needed to use it again.)
      if (call != SYS_mprotect && call != SYS_mmap) {
        for (size_t i = 0; i < 3000; i++) REQUIRE((blocks[i] = calloc(1, 3000)) != nullptr);
        for (size_t i = 0; i < 3000; i++) {
          REQUIRE(subject::is_zero(blocks[i], 3000));
          free(blocks[i]);
        }
      }
      exercise(may_fail);
    }) << strerrorname_np(error);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, Refusal,
    testing::Values(Refused{"madvise", SYS_madvise}, Refused{"mremap", SYS_mremap},
                    Refused{"munmap", SYS_munmap}, Refused{"mprotect", SYS_mprotect},
                    Refused{"mmap", SYS_mmap}, Refused{"futex", SYS_futex},
                    Refused{"prctl", SYS_prctl}),
    [](const testing::TestParamInfo<Refused> &of) { return of.param.name; });

// Without mmap, freed memory serves again, also for other sizes.
TEST(Refusal, FreedMemoryServesWithoutMmap) {
  if (!can_filter()) GTEST_SKIP() << "no seccomp filter can be installed here";
  for (int error : kErrors) {
    EXPECT_CHILD(250, [error] {
      static void *blocks[20000];
      for (void *&block : blocks) memset(block = malloc(500), 1, 500);
      report_misuse(SYS_mmap, error);
      for (int round = 0; round < 3; round++) {
        for (void *block : blocks) free(block);
        for (void *&block : blocks) {
          block = calloc(1, 480);  // the same size class
          REQUIRE(block && subject::is_zero(block, 480));
          memset(block, 1, 480);
        }
      }
      errno = 0;
      REQUIRE(malloc(subject::kGiB * 4) == nullptr && errno == ENOMEM);
      for (void *block : blocks) free(block);
      size_t total = 0, count = 0;
      while (count < 20000 && (blocks[count] = malloc(2000)) != nullptr) {
        memset(blocks[count++], 2, 2000);
        total += 2000;
      }
      REQUIRE(count == 20000 || errno == ENOMEM);
      if (total < 4 * kMiB) fprintf(stderr, "of 10 MB freed %zu serve again\n", total);
      REQUIRE(total >= 4 * kMiB);
      while (count) free(blocks[--count]);
    }) << strerrorname_np(error);
  }
}

}  // namespace
