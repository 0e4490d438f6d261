// Use of the heap while the process ends: in atexit handlers, in destructors of static objects, of
// function-local ones and of thread_local objects of the main thread, while the other threads work
// or have ended. The argument chooses the way out: return, exit (from another thread),
// pthread_exit, quick_exit. The last thread must not end with signals blocked: programs that an
// atexit handler starts would inherit that.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace {

void exercise() {
  void *blocks[300];
  for (size_t i = 0; i < 300; i++) {
    blocks[i] = malloc(i * i / 4);
    if (!blocks[i]) abort();
    memset(blocks[i], 1, i * i / 4);
  }
  for (size_t i = 0; i < 300; i++) blocks[i] = realloc(blocks[i], i * 50 + 1);
  for (void *block : blocks) free(block);
  free(malloc(3000000));
}

struct Lasting {
  std::vector<std::string> texts{1000, std::string(100, 'x')};
  void *early = malloc(500);
  ~Lasting() {
    exercise();
    free(early);
  }
};

Lasting g_lasting;
thread_local Lasting t_lasting;

__attribute__((destructor)) void at_the_very_end() { exercise(); }

void *storm(void *) {
  if (t_lasting.texts.size() != 1000) abort();
  for (;;) exercise();
}

void *leave(void *) {
  exercise();
  exit(0);
}

void *outlast(void *main_thread) {
  exercise();
  pthread_join(*static_cast<pthread_t *>(main_thread), nullptr);
  exercise();
  return nullptr;
}

void see_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (sigismember(&blocked, SIGTERM)) abort();
}

}  // namespace

int main(int argc, char **argv) {
  const std::string way = argc > 1 ? argv[1] : "return";
  alarm(100);
  atexit(exercise);
  at_quick_exit(exercise);
  if (t_lasting.texts.size() != 1000) abort();
  if (way != "alone" && way != "outlasted") {
    for (int i = 0; i < 6; i++) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, storm, nullptr) != 0) return 1;
    }
  }
  for (int i = 0; i < 5; i++) exercise();
  if (way == "exit") {
    pthread_t thread;
    pthread_create(&thread, nullptr, leave, nullptr);
    for (;;) exercise();
  }
  if (way == "quick_exit") quick_exit(0);
  static pthread_t main_thread = pthread_self();
  if (way == "outlasted") {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, outlast, &main_thread) != 0) return 1;
  }
  if (way == "alone" || way == "outlasted") {
    prctl(PR_SET_NAME, ") S 1 (");  // must not confuse a reader of /proc/self/stat
    atexit(see_signals);
    pthread_exit(nullptr);  // exit(0) follows in the last thread
  }
  return 0;
}
