// fork: from a storm of allocating threads, nested, against stdio, with atfork handlers that
// allocate, and from a signal handler of a single-threaded program. Every child and every parent
// has an alarm; a deadlock ends as "signal Alarm clock".

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

#include <string>

#include "storm.h"
#include "subject.h"

namespace {

using storm::exercise;
using storm::g_mailbox;
using storm::start_storm;
using storm::wait_for_clean;

void *worker(void *seed) {
  exercise(static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed)), 3000);
  return nullptr;
}

// A child continues as a program of its own.
void live_on(int depth) {
  alarm(100);
  exercise(static_cast<unsigned>(depth), 2000);
  // blocks of threads that the child does not have
  for (auto &slot : g_mailbox) free(slot.exchange(nullptr));
  pthread_t threads[3];
  for (uintptr_t i = 0; i < 3; i++) {
    REQUIRE(pthread_create(&threads[i], nullptr, worker, reinterpret_cast<void *>(i)) == 0);
  }
  if (depth > 0) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      live_on(depth - 1);
      _exit(0);
    }
    wait_for_clean(child);
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  malloc_trim(0);
  exercise(99, 2000);
}

TEST(Fork, FromAStormNested) {
  EXPECT_CHILD(250, [] {
    start_storm(4);
    for (int i = 0; i < 60; i++) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        live_on(i % 4);
        _exit(0);
      }
      exercise(static_cast<unsigned>(i), 500);
      wait_for_clean(child);
    }
    _exit(0);
  });
}

// All threads of the storm fork at once.
TEST(Fork, FromManyThreadsAtOnce) {
  EXPECT_CHILD(250, [] {
    start_storm(2);
    pthread_t threads[4];
    for (pthread_t &thread : threads) {
      REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
        for (int i = 0; i < 40; i++) {
          const pid_t child = fork();
          REQUIRE(child >= 0);
          if (child == 0) {
            alarm(100);
            exercise(5, 300);
            _exit(0);
          }
          exercise(6, 300);
          wait_for_clean(child);
        }
        return nullptr;
      }, nullptr) == 0);
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    _exit(0);
  });
}

// A child that runs for long can use the memory of the parent's other threads.
TEST(Fork, ChildReusesWhatOtherThreadsHad) {
  EXPECT_CHILD(250, [] {
    static void *blocks[4][20000];
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 5);
    for (auto &own : blocks) {
      pthread_t thread;
      pthread_create(&thread, nullptr, [](void *mine) -> void * {
        void **array = static_cast<void **>(mine);
        for (int i = 0; i < 20000; i++) memset(array[i] = malloc(500), 1, 500);
        pthread_barrier_wait(&barrier);
        pause();
        return nullptr;
      }, own);
    }
    pthread_barrier_wait(&barrier);
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      const long before = subject::rss_kib();
      for (int round = 0; round < 20; round++) {
        for (auto &own : blocks) {
          for (void *&block : own) free(block);
        }
        for (auto &own : blocks) {
          for (void *&block : own) memset(block = malloc(500), 2, 500);
        }
      }
      const long grown = subject::rss_kib() - before;
      if (grown > 48 * 1024) fprintf(stderr, "the child grew by %ld KiB\n", grown);
      REQUIRE(grown <= 48 * 1024);  // a round without reuse would be 40 MiB
      for (auto &own : blocks) {
        for (void *block : own) free(block);
      }
      malloc_trim(0);
      if (subject::rss_kib() > before - 24 * 1024) {
        fprintf(stderr, "the child: %ld KiB at fork, %ld all freed and trimmed\n", before,
                subject::rss_kib());
      }
      REQUIRE(subject::rss_kib() <= before - 24 * 1024);
      _exit(0);
    }
    wait_for_clean(child);
    _exit(0);
  });
}

// fork takes the lock of the list of streams. A thread that flushes all streams holds that lock and
// waits for a stream, whose holder is inside malloc. An allocator that takes its locks before stdio
// takes its own closes the circle.
TEST(Fork, AgainstStdio) {
  EXPECT_CHILD(250, [] {
    static FILE *input;
    input = tmpfile();
    const std::string line(3000, 'x');
    for (size_t i = 0; i < 300; i++) {
      fprintf(input, "%s\n", line.substr(0, 10 + i * 9).c_str());
    }
    auto read_lines = [](void *) -> void * {
      for (;;) {
        flockfile(input);
        rewind(input);
        // Reading grows the buffer by realloc while the stream is locked.
        char *text = nullptr;
        size_t capacity = 0;
        for (int i = 0; i < 50 && getline(&text, &capacity, input) > 0; i++) {
          free(text);
          text = nullptr;
          capacity = 0;
        }
        funlockfile(input);
        free(text);
      }
    };
    auto flush_all = [](void *) -> void * {
      for (;;) fflush(nullptr);
    };
    auto open_close = [](void *) -> void * {
      for (;;) {
        FILE *null = fopen("/dev/null", "we");
        fprintf(null, "%d", 5);
        fclose(null);
      }
    };
    pthread_t thread;
    for (int i = 0; i < 2; i++) pthread_create(&thread, nullptr, read_lines, nullptr);
    pthread_create(&thread, nullptr, flush_all, nullptr);
    pthread_create(&thread, nullptr, open_close, nullptr);
    for (int i = 0; i < 400; i++) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        alarm(100);
        free(malloc(1000));
        FILE *own = fopen("/dev/null", "we");
        fprintf(own, "%s", "child");
        fclose(own);
        _exit(0);
      }
      wait_for_clean(child);
    }
    _exit(0);
  });
}

int g_handler_runs;
void allocate_in_handler() {
  g_handler_runs++;
  exercise(4, 200);
  free(g_mailbox[1].exchange(malloc(5000)));
}

// Registered as early as a program can, before the constructors of libraries, so these handlers run
// inside an allocator's own handlers.
void register_early(int, char **, char **) {
  pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
}
__attribute__((section(".preinit_array"), used)) void (*const g_register_early)(
    int, char **, char **) = register_early;

TEST(Fork, HandlersThatAllocate) {
  EXPECT_CHILD(250, [] {
    pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
    start_storm(3);
    for (int i = 0; i < 60; i++) {
      const int runs_before = g_handler_runs;
      const pid_t child = fork();
      REQUIRE(child >= 0);
      REQUIRE(g_handler_runs == runs_before + 4);  // prepare and this side, early and late
      if (child == 0) {
        live_on(1);
        _exit(0);
      }
      wait_for_clean(child);
    }
    _exit(0);
  });
}

// fork is async-signal-safe in a program of one thread; the signal arrives anywhere in malloc.
TEST(Fork, InASignalHandlerOfOneThread) {
  // A program of its own, since the early handlers above would allocate inside the signal handler.
  const subject::Outcome outcome = subject::run_program({SIGNAL_FORK_PROGRAM});
  EXPECT_EQ(outcome.end, "exit 0") << outcome.err;
}

// posix_spawn, vfork and system use the same machinery, in part without the handlers.
TEST(Fork, SpawnFromAStorm) {
  EXPECT_CHILD(250, [] {
    start_storm(3);
    for (int i = 0; i < 40; i++) {
      REQUIRE(system("exit 3") == 3 << 8);
      FILE *pipe = popen("echo here", "re");
      char text[16] = "";
      REQUIRE(fgets(text, sizeof text, pipe) && strcmp(text, "here\n") == 0);
      REQUIRE(pclose(pipe) == 0);
    }
    _exit(0);
  });
}

}  // namespace
