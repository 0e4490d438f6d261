// Helpers of the fork tests: work that checks contents, and a storm of threads that allocate, free
// each other's blocks, start and end, until the process ends.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "subject.h"

namespace storm {

inline void wait_for_clean(pid_t child) {
  int status = 0;
  pid_t got;
  while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  fprintf(stderr, "a forked child: %s\n", subject::describe_status(status).c_str());
  _exit(subject::kFailedExit);
}

inline void exercise(unsigned seed, int operations) {
  void *slots[200] = {};
  size_t sizes[200] = {};
  unsigned state = seed * 2654435761u + 1;
  for (int i = 0; i < operations; i++) {
    state = state * 1664525 + 1013904223;
    const size_t at = (state >> 24) % 200;
    if (slots[at]) REQUIRE(subject::holds(slots[at], std::min<size_t>(sizes[at], 64), seed));
    free(slots[at]);
    const unsigned kind = (state >> 4) % 64;
    sizes[at] = kind == 0  ? 300 * subject::kKiB
                : kind < 4 ? (state >> 10) % 40000
                           : (state >> 10) % 800;
    slots[at] = kind == 9 ? calloc(1, sizes[at]) : malloc(sizes[at]);
    REQUIRE(slots[at] != nullptr);
    subject::fill(slots[at], std::min<size_t>(sizes[at], 64), seed);
    if (kind == 10) {
      slots[at] = realloc(slots[at], sizes[at] + 3000);
      REQUIRE(slots[at] != nullptr);
    }
  }
  for (void *slot : slots) free(slot);
}

// The mailbox of the storm, through which threads exchange blocks.
inline std::atomic<void *> g_mailbox[1024];

inline void *blow(void *argument) {
  unsigned state = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument)) + 1;
  for (;;) {
    for (int i = 0; i < 500; i++) {
      state = state * 1664525 + 1013904223;
      const size_t size = (state >> 28) == 0 ? 200 * subject::kKiB : (state >> 12) % 2000 + 16;
      char *block = static_cast<char *>(malloc(size));
      REQUIRE(block != nullptr);
      memset(block, static_cast<int>(size & 0xff), 16);
      free(g_mailbox[(state >> 6) % 1024].exchange(block));
    }
    pthread_t short_lived;
    if (pthread_create(&short_lived, nullptr, [](void *) -> void * {
          free(g_mailbox[0].exchange(malloc(100)));
          return nullptr;
        }, nullptr) == 0) {
      pthread_join(short_lived, nullptr);
    }
  }
}

inline void start_storm(int threads) {
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, blow,
                           reinterpret_cast<void *>(static_cast<uintptr_t>(i))) == 0);
  }
}

}  // namespace storm
