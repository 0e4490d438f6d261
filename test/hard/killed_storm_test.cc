// SIGKILL in a storm of forks: children that allocate in several threads and fork grandchildren are
// killed at random instants, during a fork as well as during malloc. The parent, whose threads
// allocate at the same time, and the grandchildren, which outlive their parents, continue
// undisturbed: contents are correct, and every grandchild ends normally.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "storm.h"
#include "subject.h"

namespace {

using storm::exercise;
using storm::start_storm;

struct Shared {
  std::atomic<int> begun;
  std::atomic<int> ended;
};

// Runs as an orphan after the kill.
[[noreturn]] void grandchild(Shared *shared, unsigned seed) {
  shared->begun++;
  alarm(100);
  exercise(seed, 1500);
  for (auto &slot : storm::g_mailbox) free(slot.exchange(nullptr));
  pthread_t thread;
  REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
    exercise(3, 1000);
    return nullptr;
  }, nullptr) == 0);
  exercise(seed + 1, 500);
  pthread_join(thread, nullptr);
  malloc_trim(0);
  shared->ended++;
  _exit(0);
}

// Runs until it is killed.
[[noreturn]] void child(Shared *shared, unsigned seed) {
  alarm(100);
  start_storm(2);
  for (unsigned i = 0;; i++) {
    exercise(seed + i, 50);
    if (i < 3) {
      const pid_t next = fork();
      if (next == 0) grandchild(shared, seed * 5 + i);
    }
  }
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(Killed, ForkStorm) {
  EXPECT_CHILD(250, [] {
    // Orphans become children of this process, which so gets their exit status.
    REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    Shared *shared = static_cast<Shared *>(
        mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(shared != MAP_FAILED);
    start_storm(3);
    unsigned state = 7;
    int killed = 0;
    // grows until a child reaches its fork, since the machine may be busy
    unsigned span_us = 20000;
    int begun = 0;
    const auto wanted = [&] { return killed < 5 || shared->begun < 5; };
    for (const double end = now() + 6; killed < 200 && (now() < end || wanted()); killed++) {
      span_us = shared->begun == begun ? span_us + span_us / 5 : 20000;
      begun = shared->begun;
      const pid_t victim = fork();
      REQUIRE(victim >= 0);
      if (victim == 0) child(shared, static_cast<unsigned>(killed));
      state = state * 1664525 + 1013904223;
      exercise(state, 100);
      usleep((state >> 8) % span_us);
      REQUIRE(kill(victim, SIGKILL) == 0);
      int status = 0;
      REQUIRE(waitpid(victim, &status, 0) == victim);
      REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    int clean = 0;
    int status = 0;
    for (pid_t orphan; (orphan = waitpid(-1, &status, 0)) > 0;) {
      if (status != 0) {
        fprintf(stderr, "a grandchild: %s\n", subject::describe_status(status).c_str());
      }
      REQUIRE(status == 0);
      clean++;
    }
    exercise(99, 5000);
    malloc_trim(0);
    REQUIRE(killed >= 5 && shared->ended >= 5);
    REQUIRE(shared->begun == shared->ended);
    REQUIRE(clean >= shared->ended - 3 * killed && clean > 0);
    _exit(0);
  });
}

}  // namespace
