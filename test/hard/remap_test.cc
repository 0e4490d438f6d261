// A realloc that the kernel refuses half-way. When a mapping is to grow and move to a chosen place,
// the kernel empties that place before it checks the limits. A mapping that another thread makes
// there in this moment must not be unmapped.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>

#include "subject.h"

namespace {

using subject::kMiB;

constexpr size_t kBlock = 40 * kMiB;
constexpr size_t kWanted = 100 * kMiB;

std::atomic<bool> g_done;

// Maps memory that fits the other thread's place, and checks whether it stays.
void *map_meanwhile(void *) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  while (!g_done) {
    char *places[4];
    for (char *&place : places) {
      place = static_cast<char *>(mmap(nullptr, 20 * kMiB, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      REQUIRE(place != MAP_FAILED);
    }
    sched_yield();
    for (char *place : places) {
      unsigned char resident;
      for (size_t at = 0; at < 20 * kMiB; at += 4 * kMiB) {
        REQUIRE(mincore(place + at, page, &resident) == 0);  // another thread has unmapped it
      }
      REQUIRE(munmap(place, 20 * kMiB) == 0);
    }
  }
  return nullptr;
}

// A limit of the data segment counts writable memory: a reservation works, growth does not.
TEST(Remap, ARefusedGrowthUnmapsNobodysMemory) {
  EXPECT_CHILD(250, [] {
    char *block = static_cast<char *>(malloc(kBlock));
    void *in_the_way = malloc(kBlock);
    REQUIRE(block && in_the_way);
    memset(block, 7, kBlock);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, map_meanwhile, nullptr) == 0);
    usleep(1000);
    subject::set_limit(RLIMIT_DATA, subject::in_use(RLIMIT_DATA) + 2 * kMiB);
    for (int i = 0; i < 6000; i++) {
      errno = 0;
      REQUIRE(realloc(block, kWanted) == nullptr && errno == ENOMEM);
    }
    g_done = true;
    pthread_join(thread, nullptr);
    for (size_t at = 0; at < kBlock; at += 4096) REQUIRE(block[at] == 7);
    subject::set_limit(RLIMIT_DATA, RLIM_INFINITY);
    block = static_cast<char *>(realloc(block, kWanted));
    REQUIRE(block != nullptr && block[kBlock - 1] == 7);
    memset(block, 8, kWanted);
    free(block);
    free(in_the_way);
  });
}

// The refusal loses neither memory nor addresses.
TEST(Remap, ARefusedGrowthLosesNoAddresses) {
  EXPECT_CHILD(250, [] {
    void *block = malloc(kBlock);
    void *in_the_way = malloc(kBlock);
    REQUIRE(block && in_the_way);
    subject::set_limit(RLIMIT_DATA, subject::in_use(RLIMIT_DATA) + 2 * kMiB);
    const long before = subject::virtual_kib();
    for (int i = 0; i < 300; i++) REQUIRE(realloc(block, kWanted) == nullptr && errno == ENOMEM);
    REQUIRE(subject::virtual_kib() - before < 4096);
    free(block);
    free(in_the_way);
  });
}

}  // namespace
