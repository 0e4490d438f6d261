// A program of one thread whose signal handler forks, while the signal arrives anywhere in malloc
// and free: POSIX lists fork as async-signal-safe here. The child only leaves.

#include <atomic>

#include <sys/time.h>

#include "subject.h"

namespace {

std::atomic<int> g_forks;

void fork_and_wait(int) {
  const int saved = errno;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    _exit(subject::kFailedExit);
  }
  g_forks++;
  errno = saved;
}

}  // namespace

int main() {
  alarm(25);
  struct sigaction action = {};
  action.sa_handler = fork_and_wait;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &timer, nullptr);

  static void *slots[3000];
  unsigned state = 1;
  while (g_forks < 400) {
    for (int i = 0; i < 2000; i++) {
      state = state * 1664525 + 1013904223;
      void *&slot = slots[(state >> 8) % 3000];
      free(slot);
      const size_t size = (state >> 28) == 0 ? 400000 : (state >> 14) % 3000;
      slot = malloc(size);
      REQUIRE(slot != nullptr);
      if (size) memset(slot, 1, size < 64 ? size : 64);
    }
    // Slow paths, in which the locks are.
    for (void *&slot : slots) {
      free(slot);
      slot = nullptr;
    }
  }
  return 0;
}
