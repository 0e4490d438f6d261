// The first use of the heap by a thread is in a signal handler, on an alternate stack of the
// smallest usual size with a guard page below.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>

#include "subject.h"

namespace {

std::atomic<void *> g_blocks[64];
std::atomic<unsigned> g_next;

void use_the_heap(int) {
  const unsigned turn = g_next++;
  char here;
  stack_t stack;
  sigaltstack(nullptr, &stack);
  REQUIRE(&here >= stack.ss_sp && &here < static_cast<char *>(stack.ss_sp) + stack.ss_size);
  void *small = malloc(100);
  void *large = malloc(300000);
  void *zero = calloc(100, 100);
  void *huge = realloc(nullptr, 50000000);
  REQUIRE(small && large && huge && subject::is_zero(zero, 10000));
  small = realloc(small, 5000);
  subject::fill(small, 5000, turn);
  free(large);
  free(zero);
  free(huge);
  free(g_blocks[turn % 64].exchange(small));
}

void *first_use_in_handler(void *) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t size = static_cast<size_t>(sysconf(_SC_SIGSTKSZ));
  if (size < 8192) size = 8192;
  size = (size + page - 1) / page * page;
  char *memory = static_cast<char *>(mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED && mprotect(memory, page, PROT_NONE) == 0);
  stack_t stack = {};
  stack.ss_sp = memory + page;
  stack.ss_size = size;
  REQUIRE(sigaltstack(&stack, nullptr) == 0);
  pthread_kill(pthread_self(), SIGUSR1);
  // Then on the ordinary stack.
  void *block = malloc(64);
  REQUIRE(block != nullptr);
  free(block);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
  munmap(memory, size + page);
  return nullptr;
}

TEST(Signal, FirstUseInAHandler) {
  EXPECT_CHILD(250, [] {
    struct sigaction action = {};
    action.sa_handler = use_the_heap;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (int i = 0; i < 500; i++) {
      pthread_t threads[4];
      for (pthread_t &thread : threads) {
        REQUIRE(pthread_create(&thread, nullptr, first_use_in_handler, nullptr) == 0);
      }
      for (pthread_t thread : threads) pthread_join(thread, nullptr);
    }
    REQUIRE(g_next == 2000);
    for (auto &block : g_blocks) free(block.exchange(nullptr));
  });
}

}  // namespace
