// Threads that end: destructors of thread-specific data that allocate, free and re-arm after the
// heap has released the thread, and very many short threads that free each other's blocks.

#include <gtest/gtest.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <string>
#include <vector>

#include "subject.h"

namespace {

using subject::kKiB;

// Keys are destroyed in the order in which they were made, so some are made before and some after
// the heap may have made its own. Each re-arms itself as often as the libc allows.
constexpr int kKeys = 24;
pthread_key_t g_keys[kKeys];
std::atomic<int> g_destructor_calls;
std::atomic<void *> g_left_for_others[64];

struct Armed {
  int key;
  int left;
  void *block;
};

void destroy(void *value) {
  Armed *armed = static_cast<Armed *>(value);
  g_destructor_calls++;
  const int key = armed->key, left = armed->left;
  free(armed->block);
  free(armed);
  // Work of all kinds on a heap that may have ended.
  void *small = malloc(40), *large = malloc(300 * kKiB), *zero = calloc(10, 30);
  if (!small || !large || !subject::is_zero(zero, 300)) abort();
  small = realloc(small, 2000);
  free(g_left_for_others[key].exchange(small));
  free(large);
  free(zero);
  if (left == 0) return;
  armed = static_cast<Armed *>(malloc(sizeof *armed));
  *armed = Armed{key, left - 1, malloc(100)};
  pthread_setspecific(g_keys[key], armed);
}

__attribute__((constructor(101))) void make_early_keys() {
  for (int i = 0; i < kKeys / 2; i++) pthread_key_create(&g_keys[i], destroy);
}

void arm_all() {
  for (int i = 0; i < kKeys; i++) {
    Armed *armed = static_cast<Armed *>(malloc(sizeof *armed));
    *armed = Armed{i, PTHREAD_DESTRUCTOR_ITERATIONS - 1, malloc(1000)};
    pthread_setspecific(g_keys[i], armed);
  }
}

struct Local {
  std::string text = std::string(200, 'x');
  std::vector<void *> blocks = {malloc(10), malloc(10000)};
  ~Local() {
    for (void *block : blocks) free(block);
    std::vector<std::string> more(100, text);
    if (more.back() != text) abort();
  }
};
thread_local Local t_local;

void *armed_thread(void *) {
  if (t_local.text.size() != 200) abort();
  arm_all();
  return nullptr;
}

void run_threads(int count, void *(*body)(void *)) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * kKiB);
  for (int done = 0; done < count; done += 4) {
    pthread_t threads[4];
    for (pthread_t &thread : threads) {
      REQUIRE(pthread_create(&thread, &attributes, body, nullptr) == 0);
    }
    for (pthread_t thread : threads) REQUIRE(pthread_join(thread, nullptr) == 0);
  }
}

// The growth in KiB since `settled`. Free memory that is not purged yet counts in both, so what is
// too much is looked at again after some time and some more threads. A leak remains.
long grown_since(long settled, void *(*body)(void *)) {
  for (int tries = 0; tries < 20 && subject::rss_kib() - settled >= 4096; tries++) {
    run_threads(400, body);
    usleep(200000);
  }
  return subject::rss_kib() - settled;
}

TEST(ThreadEnd, DestructorsThatRearm) {
  EXPECT_CHILD(250, [] {
    for (int i = kKeys / 2; i < kKeys; i++) pthread_key_create(&g_keys[i], destroy);
    run_threads(400, armed_thread);
    const long settled = subject::rss_kib();
    const size_t live = mallinfo2().uordblks + mallinfo2().hblkhd;
    run_threads(4000, armed_thread);
    REQUIRE(g_destructor_calls == 4400 * kKeys * PTHREAD_DESTRUCTOR_ITERATIONS);
    // A heap that was made for an ending thread must be released again, block by block and page by
    // page.
    REQUIRE(grown_since(settled, armed_thread) < 4096);
    REQUIRE(mallinfo2().uordblks + mallinfo2().hblkhd < live + 256 * kKiB);
  });
}

// The first use of the heap by a thread is in a destructor.
TEST(ThreadEnd, FirstUseInADestructor) {
  EXPECT_CHILD(250, [] {
    static pthread_key_t key;
    pthread_key_create(&key, [](void *) {
      void *block = malloc(1000);
      memset(block, 1, 1000);
      free(g_left_for_others[0].exchange(block));
    });
    auto body = [](void *) -> void * {
      pthread_setspecific(key, &key);
      return nullptr;
    };
    run_threads(400, body);
    const long settled = subject::rss_kib();
    run_threads(20000, body);
    REQUIRE(grown_since(settled, body) < 4096);
  });
}

// 100,000 threads. Each frees blocks of earlier threads and leaves blocks for later ones; some
// blocks live much longer than their thread.
TEST(ThreadEnd, HundredThousandShortThreads) {
  EXPECT_CHILD(250, [] {
    static std::atomic<void *> mailbox[4096];
    auto body = [](void *) -> void * {
      static std::atomic<unsigned> turn;
      unsigned state = turn++ * 2654435761u;
      for (int i = 0; i < 16; i++) {
        state = state * 1664525 + 1013904223;
        const size_t size = (state >> 10) % 500 + 1;
        char *block = static_cast<char *>(malloc(size));
        if (!block) abort();
        memset(block, 1, size);
        // Low slots are exchanged often, high ones rarely.
        const unsigned slot = (state >> 20) & (i % 4 ? 255 : 4095);
        free(mailbox[slot].exchange(block));
      }
      return nullptr;
    };
    run_threads(10000, body);
    const long settled = subject::rss_kib();
    run_threads(90000, body);
    const long grown = grown_since(settled, body);
    // 4096 live blocks of 250 bytes on average, which is one megabyte.
    if (grown >= 4096) fprintf(stderr, "grown by %ld KiB over 90,000 threads\n", grown);
    REQUIRE(grown < 4096);
  });
}

// Blocks of an ended thread can be used like any others: realloc, usable size, free.
TEST(ThreadEnd, BlocksOutliveTheirThread) {
  EXPECT_CHILD(250, [] {
    static std::vector<void *> blocks(20000);
    for (int round = 0; round < 5; round++) {
      pthread_t thread;
      pthread_create(&thread, nullptr, [](void *) -> void * {
        for (size_t i = 0; i < blocks.size(); i++) {
          blocks[i] = malloc(i % 3000 + 1);
          subject::fill(blocks[i], i % 3000 + 1, static_cast<unsigned>(i));
        }
        return nullptr;
      }, nullptr);
      pthread_join(thread, nullptr);
      for (size_t i = 0; i < blocks.size(); i++) {
        REQUIRE(subject::holds(blocks[i], i % 3000 + 1, static_cast<unsigned>(i)));
        if (i % 3 == 0) blocks[i] = realloc(blocks[i], i % 3000 + 500);
        REQUIRE(subject::holds(blocks[i], i % 3000 + 1, static_cast<unsigned>(i)));
      }
      for (void *block : blocks) free(block);
    }
  });
}

}  // namespace
