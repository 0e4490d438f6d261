// Resident memory: the cost of the heap, and the memory that it releases.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include <vector>

#include "subject.h"

namespace {

using subject::kGiB;
using subject::kKiB;
using subject::kMiB;
using subject::rss_kib;

// Each case runs in a child, so that none inherits the heap of another.
#define EXPECT_IN_CHILD(...) EXPECT_CHILD(250, __VA_ARGS__)

void require_at_most(const char *what, long kib, size_t most_kib) {
  if (kib <= static_cast<long>(most_kib)) return;
  fprintf(stderr, "%s: %ld KiB, more than %zu KiB\n", what, kib, most_kib);
  _exit(subject::kFailedExit);
}

// Ordinary activity of a program, including slow paths.
void ordinary_activity(double seconds) {
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  unsigned state = 1;
  std::vector<void *> slots(500);
  do {
    for (int i = 0; i < 2000; i++) {
      state = state * 1664525 + 1013904223;
      void *&slot = slots[state % slots.size()];
      free(slot);
      slot = malloc((state >> 8) % 3000);
    }
    free(malloc(200 * kKiB));
    usleep(1000);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (static_cast<double>(now.tv_sec - start.tv_sec) +
               static_cast<double>(now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
  for (void *slot : slots) free(slot);
}

TEST(Footprint, LargeUntouchedBlocksAreLazy) {
  EXPECT_IN_CHILD([] {
    free(malloc(kMiB));
    const long before = rss_kib();
    void *blocks[] = {malloc(kGiB), calloc(1, kGiB), memalign(2 * kMiB, kGiB / 2),
                      realloc(malloc(kMiB), kGiB), calloc(1, 3 * kMiB)};
    for (void *block : blocks) REQUIRE(block != nullptr);
    // The first megabyte of one block is copied; the last block may use memory of earlier ones, of
    // which 3 MiB are cleared.
    require_at_most("3.5 GiB untouched", rss_kib() - before, 8 * 1024);
    for (void *block : blocks) free(block);
  });
}

// Hash tables, rings and heaps of other allocators may touch one byte in each 2 MiB.
TEST(Footprint, LargeSparseBlocksAreSparse) {
  EXPECT_IN_CHILD([] {
    const long before = rss_kib();
    auto *block = static_cast<volatile char *>(malloc(kGiB));
    REQUIRE(block != nullptr);
    for (size_t at = 0; at < kGiB; at += 2 * kMiB) block[at] = 1;
    require_at_most("512 bytes of 1 GiB touched", rss_kib() - before, 4 * 1024);
    free(const_cast<char *>(block));
  });
}

// One byte is written in each of many blocks of medium size: their other pages stay untouched.
TEST(Footprint, MiddlingUntouchedBlocksAreLazy) {
  EXPECT_IN_CHILD([] {
    const long before = rss_kib();
    static void *blocks[1000];
    for (void *&block : blocks) {
      block = malloc(256 * kKiB);
      *static_cast<char *>(block) = 1;
    }
    // 4 KiB of each are touched. A part may be populated ahead: at most an eighth of the heap.
    require_at_most("1000 blocks of 256 KiB, a page of each touched", rss_kib() - before,
                    4000 + 250 * 1024 / 8 + 2048);
    for (void *block : blocks) free(block);
  });
}

TEST(Footprint, LargeFreeGivesBack) {
  EXPECT_IN_CHILD([] {
    ordinary_activity(0.05);
    const long before = rss_kib();
    for (size_t size : {512 * kMiB, 100 * kMiB, 3 * kMiB}) {
      std::vector<void *> blocks;
      for (size_t total = 0; total < 512 * kMiB; total += size) {
        blocks.push_back(malloc(size));
        memset(blocks.back(), 1, size);
      }
      REQUIRE(rss_kib() - before > 480 * 1024);
      for (void *block : blocks) free(block);
      // Memory that may soon be needed again is kept until the decay.
      if (size == 512 * kMiB)
        require_at_most("at once after freeing 512 MiB", rss_kib() - before, 128 * 1024);
    }
    ordinary_activity(3.0);  // decay_ms, and a second
    // If the machine stopped meanwhile, fewer intervals have ended. A leak remains.
    for (int i = 0; i < 20 && rss_kib() - before > 16 * 1024; i++) ordinary_activity(0.2);
    require_at_most("3 s after freeing 512 MiB", rss_kib() - before, 16 * 1024);
    malloc_trim(0);
    require_at_most("512 MiB freed and trimmed", rss_kib() - before, 4 * 1024);
  });
}

TEST(Footprint, TrimGivesSmallBlocksBack) {
  EXPECT_IN_CHILD([] {
    ordinary_activity(0.05);
    malloc_trim(0);
    const long before = rss_kib();
    std::vector<void *> blocks(1500000);
    unsigned state = 7;
    for (void *&block : blocks) {
      state = state * 1664525 + 1013904223;
      const size_t size = (state >> 8) % 300;
      block = malloc(size);
      memset(block, 1, size);
    }
    REQUIRE(rss_kib() - before > 200 * 1024);
    for (void *block : blocks) free(block);
    std::vector<void *>().swap(blocks);
    malloc_trim(0);
    // The metadata of the blocks may stay, which is 2 % and more.
    require_at_most("230 MiB of small blocks freed and trimmed", rss_kib() - before, 8 * 1024);
  });
}

// Four threads free 512 MiB and sleep, and all other threads sleep too: no thread is active that
// could run the decay.
TEST(Footprint, SleepersKeepLittle) {
  constexpr size_t kBlocks = 345000;
  EXPECT_IN_CHILD([] {
    static pthread_barrier_t barrier;
    static void *blocks[4][kBlocks];
    for (auto &each : blocks)
      for (void *&block : each) block = &block;  // makes the array resident
    pthread_barrier_init(&barrier, nullptr, 5);
    const long before = rss_kib();
    for (auto &each : blocks) {
      pthread_t thread;
      REQUIRE(pthread_create(&thread, nullptr, [](void *own) -> void * {
        auto *mine = static_cast<void **>(own);
        unsigned state = 7;
        for (size_t i = 0; i < kBlocks; i++) {
          state = state * 1664525 + 1013904223;
          size_t size = (state >> 8) % 400 + 1;
          if (state >> 24 == 0) size *= 200;  // rarely a large one
          memset(mine[i] = malloc(size), 1, size);
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);  // until main has measured
        for (size_t i = 0; i < kBlocks; i++) free(mine[i]);
        pthread_barrier_wait(&barrier);
        pause();
        return nullptr;
      }, each) == 0);
    }
    pthread_barrier_wait(&barrier);
    const long full = rss_kib() - before;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    usleep(100000);
    REQUIRE(full > 480 * 1024);
    // A trim leaves 4.5 MiB of it, the descriptions of slabs. The slabs of five threads take 2.5
    // MiB, and as much free memory is kept. Each shard of the page layer may have freed a MiB more
    // than it has told the others (decision 49): that much is free and is also taken for used.
    const long shards = std::min(5L, sysconf(_SC_NPROCESSORS_ONLN));
    require_at_most("freed by four threads that sleep", rss_kib() - before,
                    static_cast<size_t>(10 + 2 * shards) * 1024);
  });
}

// A trim by any thread also releases the caches of idle threads.
TEST(Footprint, TrimReachesIdleThreads) {
  EXPECT_IN_CHILD([] {
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 5);
    const long before = rss_kib();
    for (int i = 0; i < 4; i++) {
      pthread_t thread;
      REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
        std::vector<void *> blocks(200000);
        for (void *&block : blocks) memset(block = malloc(200), 1, 200);
        for (void *block : blocks) free(block);
        std::vector<void *>().swap(blocks);
        pthread_barrier_wait(&barrier);
        pause();
        return nullptr;
      }, nullptr) == 0);
    }
    pthread_barrier_wait(&barrier);
    malloc_trim(0);
    require_at_most("160 MiB freed by idle threads and trimmed", rss_kib() - before, 4 * 1024);
  });
}

// Growth by realloc, with every byte touched. Copying to a second block would double the peak.
TEST(Footprint, ReallocDoesNotDoubleThePeak) {
  struct {
    size_t from, to, step;
  } const growths[] = {{kMiB, 256 * kMiB, kMiB},
                       {64 * kMiB, 512 * kMiB, 64 * kMiB},
                       {300 * kKiB, 96 * kMiB, 300 * kKiB}};
  for (const auto &growth : growths) {
    EXPECT_IN_CHILD([growth] {
      const long before = rss_kib();
      char *block = static_cast<char *>(malloc(growth.from));
      memset(block, 1, growth.from);
      void *in_the_way[64];
      size_t neighbours = 0;
      for (size_t size = growth.from; size < growth.to; size += growth.step) {
        block = static_cast<char *>(realloc(block, size + growth.step));
        REQUIRE(block != nullptr);
        memset(block + size, 1, growth.step);
        if (neighbours < 64) in_the_way[neighbours++] = malloc(200 * kKiB);
      }
      const size_t live = growth.to / kKiB;
      require_at_most("peak of growing by realloc", subject::peak_rss_kib() - before,
                      live + live / 8 + 8 * 1024);
      while (neighbours) free(in_the_way[--neighbours]);
      free(block);
    });
  }
}

// A thousand threads that each allocated a little and are now idle: at most 100 KiB each, with
// their stacks.
TEST(Footprint, IdleThreadsAreCheap) {
  EXPECT_IN_CHILD([] {
    constexpr int kThreads = 1000;
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, kThreads + 1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * kKiB);
    const long before = rss_kib();
    for (int i = 0; i < kThreads; i++) {
      pthread_t thread;
      REQUIRE(pthread_create(&thread, &attributes, [](void *) -> void * {
        void *blocks[48];
        for (size_t j = 0; j < 48; j++) {
          const size_t size = 8 + j % 16 * 21;  // 8 to 323 bytes, a dozen size classes
          memset(blocks[j] = malloc(size), 1, size);
        }
        for (size_t j = 0; j < 48; j += 2) free(blocks[j]);
        pthread_barrier_wait(&barrier);
        pause();
        return nullptr;
      }, nullptr) == 0);
    }
    pthread_barrier_wait(&barrier);
    const long each = (rss_kib() - before) / kThreads;
    require_at_most("an idle thread", each, 100);
  });
}

// A steady load, repeated by new threads, does not grow. The threads wait for each other before
// they free: otherwise the scheduler would decide the peak of the first rounds.
TEST(Footprint, SteadyLoadDoesNotGrow) {
  EXPECT_IN_CHILD([] {
    long after_first = 0;
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 4);
    for (int round = 0; round < 12; round++) {
      pthread_t threads[4];
      for (pthread_t &thread : threads) {
        REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
          std::vector<void *> blocks(20000);
          unsigned state = 3;
          for (int pass = 0; pass < 60000; pass++) {
            state = state * 1664525 + 1013904223;
            void *&slot = blocks[(state >> 4) % blocks.size()];
            free(slot);
            const size_t size = (state >> 12) % 700;
            slot = malloc(size);
            memset(slot, 1, size);
          }
          pthread_barrier_wait(&barrier);
          for (void *block : blocks) free(block);
          return nullptr;
        }, nullptr) == 0);
      }
      for (pthread_t thread : threads) pthread_join(thread, nullptr);
      if (round == 2) after_first = subject::peak_rss_kib();
    }
    require_at_most("growth over ten equal rounds", subject::peak_rss_kib() - after_first,
                    static_cast<size_t>(after_first) / 4 + 4096);
  });
}

}  // namespace
