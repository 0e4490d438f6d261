// Signals at random instants in a program of many threads that allocate, free each other's blocks,
// start and end. The handlers do what POSIX allows anywhere: they raise another signal, whose
// handler runs inside the first, and leave a child by _Fork. The heap of the program is consistent
// afterwards, and each child can read the blocks.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include <atomic>

#include "subject.h"

namespace {

constexpr int kThreads = 6;
constexpr size_t kBoxes = 512;
constexpr size_t kMarked = 16;  // marked bytes

std::atomic<int> g_signals, g_raised, g_forks;
std::atomic<bool> g_done;
std::atomic<char *> g_boxes[kBoxes];
char *g_lasting;  // a block that is never freed

// The nested handler, which runs on top of one that interrupted any code.
void count(int) { g_raised++; }

void disturb(int) {
  const int saved = errno;
  const int turn = g_signals++;
  if (turn % 2 == 0) raise(SIGUSR2);
  if (turn % 16 == 1) {
    const pid_t child = _Fork();
    if (child == 0) _exit(subject::holds(g_lasting, 5000, 3) ? 0 : subject::kFailedExit);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      _exit(subject::kFailedExit);
    }
    g_forks++;
  }
  errno = saved;
}

// A block holds its size and marks that follow from the size.
void check_and_free(char *block) {
  size_t size;
  memcpy(&size, block, sizeof size);
  REQUIRE(malloc_usable_size(block) >= size);
  REQUIRE(subject::holds(block + sizeof size, kMarked, static_cast<unsigned>(size)));
  free(block);
}

void put(char *block, size_t size, unsigned place) {
  memcpy(block, &size, sizeof size);
  subject::fill(block + sizeof size, kMarked, static_cast<unsigned>(size));
  char *other = g_boxes[place % kBoxes].exchange(block);
  if (other) check_and_free(other);
}

void *allocate(void *argument) {
  unsigned state = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument)) + 1;
  for (int i = 0; i < 2000 && !g_done; i++) {
    state = state * 1664525 + 1013904223;
    const unsigned kind = (state >> 8) % 64;
    const size_t size = 24 + (kind == 0 ? 400000 : kind < 8 ? (state >> 14) % 40000
                                                            : (state >> 14) % 1500);
    char *block = static_cast<char *>(kind % 3 == 0   ? calloc(1, size)
                                      : kind % 3 == 1 ? realloc(malloc(24), size)
                                                      : malloc(size));
    REQUIRE(block != nullptr);
    put(block, size, state >> 4);
    if (i % 500 == 499) malloc_trim(0);
  }
  return nullptr;
}

// Runs one thread after another.
void *lane(void *argument) {
  while (!g_done) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, allocate, argument) == 0);
    pthread_join(thread, nullptr);
  }
  return nullptr;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(SignalStorm, HandlersRaiseAndFork) {
  EXPECT_CHILD(250, [] {
    g_lasting = static_cast<char *>(malloc(5000));
    subject::fill(g_lasting, 5000, 3);
    struct sigaction action = {};
    action.sa_flags = SA_RESTART | SA_NODEFER;
    action.sa_handler = count;
    sigaction(SIGUSR2, &action, nullptr);
    action.sa_flags = SA_RESTART;
    action.sa_handler = disturb;
    sigaction(SIGUSR1, &action, nullptr);
    pthread_t threads[kThreads];
    for (uintptr_t i = 0; i < kThreads; i++) {
      REQUIRE(pthread_create(&threads[i], nullptr, lane, reinterpret_cast<void *>(i)) == 0);
    }
    // The kernel delivers a signal of the process to any thread that runs.
    unsigned state = 1;
    const auto enough = [] { return g_signals > 100 && g_raised > 50 && g_forks > 5; };
    for (const double end = now() + 5; (now() < end || !enough()) && g_signals < 20000;) {
      state = state * 1664525 + 1013904223;
      usleep((state >> 20) % 200);
      kill(getpid(), SIGUSR1);
    }
    g_done = true;
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    signal(SIGUSR1, SIG_IGN);
    REQUIRE(enough());
    REQUIRE(subject::holds(g_lasting, 5000, 3));
    for (auto &box : g_boxes) {
      if (char *block = box.exchange(nullptr)) check_and_free(block);
    }
    malloc_trim(0);
  });
}

}  // namespace
