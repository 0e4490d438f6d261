// A program of one thread whose signal handler forks, while the signal arrives anywhere in malloc
// and free: POSIX lists fork as async-signal-safe here. Most children only exit; some return from
// the handler into the interrupted malloc or free, and continue as programs of their own.

#include <atomic>

#include <sys/time.h>

#include "subject.h"

namespace {

std::atomic<int> g_forks;
std::atomic<bool> g_is_child;

void fork_and_wait(int) {
  const int saved = errno;
  const pid_t child = fork();
  if (child == 0 && g_forks % 8 != 0) _exit(0);
  if (child == 0) {
    g_is_child = true;
    alarm(100);  // neither the alarm nor the timer is inherited
    errno = saved;
    return;
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    _exit(subject::kFailedExit);
  }
  g_forks++;
  errno = saved;
}

struct Slot {
  void *block;
  size_t size;
  unsigned seed;

  size_t marked() const { return size < 64 ? size : 64; }

  void take(size_t bytes, unsigned mark) {
    size = bytes;
    seed = mark;
    block = malloc(bytes);
    REQUIRE(block != nullptr);
    subject::fill(block, marked(), seed);
  }

  void release() {
    REQUIRE(!block || subject::holds(block, marked(), seed));
    free(block);
    block = nullptr;
  }
};

}  // namespace

int main() {
  alarm(100);
  struct sigaction action = {};
  action.sa_handler = fork_and_wait;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &timer, nullptr);

  static Slot slots[3000];
  unsigned state = 1;
  while (g_forks < 400) {
    for (int i = 0; i < 2000; i++) {
      state = state * 1664525 + 1013904223;
      Slot &slot = slots[(state >> 8) % 3000];
      slot.release();
      slot.take((state >> 28) == 0 ? 400000 : (state >> 14) % 3000, state);
    }
    // Slow paths, which take the locks.
    for (Slot &slot : slots) slot.release();
    if (g_is_child) return 0;
  }
  return 0;
}
