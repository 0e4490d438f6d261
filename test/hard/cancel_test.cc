// No call of the heap is a cancellation point: a thread with a pending cancellation passes all of
// them, also their slow paths, and stops only at pthread_testcancel.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include <new>

#include "subject.h"

namespace {

int g_stage;

void *cancelled(void *) {
  pthread_cancel(pthread_self());
  static void *blocks[3000];
  for (int round = 0; round < 5; round++) {
    g_stage = 1;
    for (size_t i = 0; i < 3000; i++) blocks[i] = malloc(i * 13);
    g_stage = 2;
    for (size_t i = 0; i < 3000; i++) blocks[i] = realloc(blocks[i], i * 31 + 1);
    g_stage = 3;
    for (size_t i = 0; i < 3000; i++) free(blocks[i]);
    g_stage = 4;
    void *large = malloc(100 * subject::kMiB);
    memset(large, 1, 10 * subject::kMiB);
    large = realloc(large, 200 * subject::kMiB);
    free(large);
    g_stage = 5;
    free(calloc(1, 30 * subject::kMiB));
    free(memalign(2 * subject::kMiB, 5 * subject::kMiB));
    g_stage = 6;
    REQUIRE(malloc(subject::opaque(SIZE_MAX)) == nullptr);
    ::operator delete(::operator new(1000));
    g_stage = 7;
    malloc_trim(0);
    mallinfo2();
    mallopt(M_MXFAST, 64);
    // Enough work for a decay to be due.
    for (int i = 0; i < 200; i++) {
      free(malloc(300 * subject::kKiB));
    }
  }
  g_stage = 100;
  pthread_testcancel();
  g_stage = 101;
  return nullptr;
}

void run_cancelled() {
  g_stage = 0;
  pthread_t thread;
  REQUIRE(pthread_create(&thread, nullptr, cancelled, nullptr) == 0);
  void *result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  if (g_stage != 100 || result != PTHREAD_CANCELED) {
    fprintf(stderr, "cancelled at stage %d\n", g_stage);
    _exit(subject::kFailedExit);
  }
}

TEST(Cancel, NothingIsACancellationPoint) {
  EXPECT_CHILD(250, [] { run_cancelled(); });
}

// The later runs find the caches filled, and memory is released between them.
TEST(Cancel, NeitherWhenWarm) {
  EXPECT_CHILD(250, [] {
    for (int i = 0; i < 3; i++) run_cancelled();
  });
}

}  // namespace
