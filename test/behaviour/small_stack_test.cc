// Every call on the smallest stack that a thread can have, including the first use of the heap.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include "subject.h"

namespace {

// The stack is above a guard page, so that a deeper call ends the process.
void run_on_smallest_stack(void *(*body)(void *), void *argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes,
                                      static_cast<size_t>(sysconf(_SC_THREAD_STACK_MIN))), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, body, argument), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
}

void *first_use(void *kind) {
  switch (reinterpret_cast<uintptr_t>(kind)) {
    case 0: free(malloc(10)); break;
    case 1: free(malloc(100000)); break;
    case 2: free(malloc(100000000)); break;
    case 3: free(calloc(1, 5000000)); break;
    case 4: free(memalign(1 << 21, 10)); break;
    case 5: free(realloc(realloc(nullptr, 300000), 30000000)); break;
    case 6: free(nullptr); break;
    case 7: malloc_trim(0); break;
    case 8: mallinfo2(); break;
  }
  return nullptr;
}

void *everything(void *) {
  void *blocks[200];
  for (size_t round = 0; round < 50; round++) {
    for (size_t i = 0; i < 200; i++) blocks[i] = malloc(i * round * 29);
    for (size_t i = 0; i < 200; i++) blocks[i] = realloc(blocks[i], i * 113 + 1);
    for (size_t i = 0; i < 200; i++) free(blocks[i]);
    free(malloc(static_cast<size_t>(64) << 20));
    malloc_trim(0);
  }
  return nullptr;
}

TEST(SmallStack, FirstUse) {
  for (uintptr_t kind = 0; kind <= 8; kind++) {
    EXPECT_CHILD(250, [kind] {
      run_on_smallest_stack(first_use, reinterpret_cast<void *>(kind));
    }) << "case " << kind;
  }
}

TEST(SmallStack, Everything) {
  EXPECT_CHILD(250, [] { run_on_smallest_stack(everything, nullptr); });
}

// Remote frees and the end of a thread have slow paths of their own.
TEST(SmallStack, ForeignBlocks) {
  EXPECT_CHILD(250, [] {
    static void *blocks[5000];
    for (size_t i = 0; i < 5000; i++) blocks[i] = malloc(i * 11);
    run_on_smallest_stack([](void *) -> void * {
      for (void *&block : blocks) {
        free(block);
        block = malloc(300);
      }
      return nullptr;
    }, nullptr);
    for (void *block : blocks) free(block);
  });
}

}  // namespace
