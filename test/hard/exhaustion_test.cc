// The end of memory, by every limit of the system: address space, data segment, number of mappings,
// descriptors. Exhaustion is NULL and ENOMEM, loses nothing, and does not last.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include <string>

#include "subject.h"

namespace {

using subject::in_use;
using subject::kGiB;
using subject::kKiB;
using subject::kMiB;
using subject::set_limit;

struct Block {
  Block *next;
  size_t size;
};

bool is_hardened() { return getenv("CAIRN_TEST_HARDENED") != nullptr; }

// The largest size, at most `size`, that must be available at a limit which earlier blocks had
// reached before they were freed. Fences divide the arenas of hardened builds (docs/HARDENING.md,
// Limits), so there it is the size that fits between two of them.
size_t largest_at_limit(size_t size) {
  return is_hardened() && size > 128 * kKiB ? 128 * kKiB : size;
}

// Allocates until failure, which must be ENOMEM. Every block is marked at its ends.
Block *exhaust(size_t size, size_t *count) {
  Block *chain = nullptr;
  *count = 0;
  for (;;) {
    errno = 0;
    Block *block = static_cast<Block *>(*count % 4 == 3 ? calloc(1, size) : malloc(size));
    if (!block) {
      REQUIRE(errno == ENOMEM);
      return chain;
    }
    if (*count % 4 == 3) REQUIRE(subject::is_zero(block, size < 4096 ? size : 4096));
    block->next = chain;
    block->size = size;
    if (size > sizeof(Block)) static_cast<char *>(static_cast<void *>(block))[size - 1] = 77;
    chain = block;
    ++*count;
  }
}

void release(Block *chain) {
  while (chain) {
    Block *next = chain->next;
    REQUIRE(chain->size <= malloc_usable_size(chain));
    if (chain->size > sizeof(Block)) {
      REQUIRE(static_cast<char *>(static_cast<void *>(chain))[chain->size - 1] == 77);
    }
    free(chain);
    chain = next;
  }
}

// At the limit every function must fail with ENOMEM. An aligned block may be of another size class,
// which still has blocks, and the decay may have freed some memory since the last failure.
void require_everything_fails(size_t size) {
  void *block = nullptr;
  void *(*const calls[])(size_t) = {
      [](size_t bytes) { return malloc(bytes); },
      [](size_t bytes) { return calloc(bytes, 1); },
      [](size_t bytes) { return realloc(nullptr, bytes); },
      [](size_t bytes) { return memalign(4096, bytes); },
      [](size_t bytes) { return aligned_alloc(64, bytes); },
      [](size_t bytes) { return valloc(bytes); },
      [](size_t bytes) { return pvalloc(bytes); },
  };
  for (auto call : calls) {
    // After some calls there is none for it either.
    Block *chain = nullptr;
    for (errno = 0; (block = call(size)) != nullptr; errno = 0) {
      Block *fresh = static_cast<Block *>(block);
      fresh->next = chain;
      chain = fresh;
    }
    REQUIRE(errno == ENOMEM);
    while (chain) {
      Block *next = chain->next;
      free(chain);
      chain = next;
    }
  }
  REQUIRE(posix_memalign(&block, 4096, SIZE_MAX / 4) == ENOMEM && block == nullptr);
}

struct Exhaustion {
  int resource;
  size_t block_size;
  size_t room;
};

std::string name_of(const Exhaustion &which) {
  return std::string(which.resource == RLIMIT_AS ? "address_space_" : "data_") +
         std::to_string(which.block_size);
}

class Limited : public testing::TestWithParam<Exhaustion> {};

// A limit that is set after the start: memory is exhausted, freed, exhausted again, and once more
// after the limit was raised.
TEST_P(Limited, ExhaustedAndBack) {
  const Exhaustion which = GetParam();
  EXPECT_CHILD(250, [which] {
    free(malloc(which.block_size));
    const size_t start = in_use(which.resource);
    set_limit(which.resource, start + which.room);
    size_t first, second, third;
    Block *chain = exhaust(which.block_size, &first);
    require_everything_fails(which.block_size);
    // A block that cannot grow does not change.
    if (chain) {
      Block before = *chain;
      errno = 0;
      REQUIRE(realloc(chain, which.block_size + 2 * which.room) == nullptr && errno == ENOMEM);
      REQUIRE(chain->next == before.next && chain->size == before.size);
    }
    release(chain);

    chain = exhaust(which.block_size, &second);
    // No page and no block is lost: as many blocks as before can be allocated, less an eighth of
    // slack.
    const size_t cost = which.block_size + (is_hardened() ? 16 : 0); // with its canary
    if (second < first - first / 8 || first * cost < which.room / 3) {
      fprintf(stderr, "room for %zu MiB: %zu blocks of %zu, then %zu\n", which.room / kMiB, first,
              which.block_size, second);
      _exit(subject::kFailedExit);
    }

    // The limit is raised while all blocks are in use: allocation works again.
    set_limit(which.resource, start + 2 * which.room);
    Block *more = exhaust(which.block_size, &third);
    if (third * cost < which.room / 3) {
      fprintf(stderr, "raised by %zu MiB: %zu blocks of %zu more\n", which.room / kMiB, third,
              which.block_size);
      _exit(subject::kFailedExit);
    }
    release(more);
    release(chain);
    for (size_t size = 1; size < largest_at_limit(which.room / 8); size *= 3) {
      void *block = malloc(size);
      REQUIRE(block != nullptr);
      free(block);
    }
    set_limit(which.resource, RLIM_INFINITY);
    for (size_t size = 1; size < which.room; size *= 3) {
      void *block = malloc(size);
      REQUIRE(block != nullptr);
      free(block);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Limits, Limited,
    testing::Values(Exhaustion{RLIMIT_AS, 16, 64 * kMiB}, Exhaustion{RLIMIT_AS, 600, 96 * kMiB},
                    Exhaustion{RLIMIT_AS, 20000, 96 * kMiB},
                    Exhaustion{RLIMIT_AS, 150000, 200 * kMiB},
                    Exhaustion{RLIMIT_AS, 3 * kMiB, 256 * kMiB},
                    Exhaustion{RLIMIT_AS, 40 * kMiB, kGiB},
                    Exhaustion{RLIMIT_DATA, 16, 64 * kMiB},
                    Exhaustion{RLIMIT_DATA, 600, 64 * kMiB},
                    Exhaustion{RLIMIT_DATA, 20000, 64 * kMiB},
                    Exhaustion{RLIMIT_DATA, 150000, 64 * kMiB},
                    Exhaustion{RLIMIT_DATA, 3 * kMiB, 128 * kMiB}),
    [](const testing::TestParamInfo<Exhaustion> &of) { return name_of(of.param); });

// After small blocks had all addresses, blocks with mappings of their own can be allocated as well.
TEST(Exhaustion, TheLargestBlocksFollowSmallOnes) {
  if (is_hardened()) GTEST_SKIP() << "fences divide the arenas";
  for (size_t size : {size_t{100}, size_t{20000}, 3 * kMiB}) {
    EXPECT_CHILD(250, [size] {
      constexpr size_t kLargest = 33 * kMiB;
      set_limit(RLIMIT_AS, in_use(RLIMIT_AS) + 400 * kMiB);
      size_t count;
      release(exhaust(size, &count));
      Block *chain = exhaust(kLargest, &count);
      fprintf(stderr, "after blocks of %zu bytes %zu of %zu MiB\n", size, count, kLargest / kMiB);
      REQUIRE(count >= 3);
      release(chain);
      void *block = aligned_alloc(8 * kMiB, kLargest);
      REQUIRE(block && reinterpret_cast<uintptr_t>(block) % (8 * kMiB) == 0);
      block = realloc(block, kLargest + 5 * kMiB);
      REQUIRE(block != nullptr);
      free(block);
      void *grown = nullptr;
      for (size_t length = 1000; length < kLargest + kMiB; length += length / 2) {
        void *longer = realloc(grown, length);
        REQUIRE(longer != nullptr);
        grown = longer;
      }
      free(grown);
      malloc_trim(0);
      REQUIRE(subject::rss_kib() < 32 * 1024);
    }) << size;
  }
}

// A limit below the mapped memory: the blocks in use can still be freed and reused.
TEST(Exhaustion, ByALimitBelowTheUse) {
  EXPECT_CHILD(250, [] {
    static void *blocks[2000];
    for (size_t i = 0; i < 2000; i++) subject::fill(blocks[i] = malloc(500), 500, 1);
    set_limit(RLIMIT_AS, kMiB);
    errno = 0;
    REQUIRE(malloc(100 * kMiB) == nullptr && errno == ENOMEM);
    for (void *block : blocks) {
      REQUIRE(subject::holds(block, 500, 1));
      free(block);
    }
    for (size_t i = 0; i < 1500; i++) {
      blocks[i] = malloc(500);
      REQUIRE(blocks[i] != nullptr);
    }
    malloc_trim(0);
    for (size_t i = 0; i < 1500; i++) free(blocks[i]);
  });
}

// The first malloc of a new thread fails at the limit, and works once the limit is raised.
TEST(Exhaustion, InANewThreadsFirstMalloc) {
  EXPECT_CHILD(250, [] {
    static pthread_barrier_t barrier;
    static int failures;
    pthread_barrier_init(&barrier, nullptr, 41);
    for (int i = 0; i < 40; i++) {
      pthread_t thread;
      REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
        pthread_barrier_wait(&barrier);  // all threads exist, memory is exhausted
        for (size_t size : {size_t{1}, size_t{1000}, 100 * kKiB, 3 * kMiB}) {
          errno = 0;
          void *block = malloc(size);
          if (!block) {
            REQUIRE(errno == ENOMEM);
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
          }
          free(block);
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);  // the limit is raised
        for (size_t size : {size_t{1}, size_t{1000}, 100 * kKiB}) {
          void *block = calloc(1, size);
          REQUIRE(block && subject::is_zero(block, size));
          free(block);
        }
        pthread_barrier_wait(&barrier);
        return nullptr;
      }, nullptr) == 0);
    }
    size_t large, small, tiny;
    set_limit(RLIMIT_AS, in_use(RLIMIT_AS) + 64 * kMiB);
    Block *chain = exhaust(kMiB, &large);
    Block *second = exhaust(5000, &small);
    Block *third = exhaust(16, &tiny);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    REQUIRE(failures >= 40);  // at least 3 MiB cannot be allocated
    release(chain);
    release(second);
    release(third);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  });
}

// Several threads exhaust memory at once, while others free. All threads have their stacks by then.
TEST(Exhaustion, FromManyThreads) {
  EXPECT_CHILD(250, [] {
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, 7);
    pthread_t threads[6];
    for (pthread_t &thread : threads) {
      REQUIRE(pthread_create(&thread, nullptr, [](void *) -> void * {
        pthread_barrier_wait(&barrier);
        for (int round = 0; round < 6; round++) {
          size_t count;
          Block *chain = exhaust(round % 2 ? 700 : 60000, &count);
          release(chain);
        }
        return nullptr;
      }, nullptr) == 0);
    }
    set_limit(RLIMIT_AS, in_use(RLIMIT_AS) + 128 * kMiB);
    pthread_barrier_wait(&barrier);
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    // All memory can be allocated again, also in long runs. Metadata that was taken at the limit
    // may be between them.
    void *block = malloc(largest_at_limit(10 * kMiB));
    REQUIRE(block != nullptr);
    free(block);
    size_t count;
    Block *chain = exhaust(60000, &count);
    REQUIRE(count * 60000 >= (is_hardened() ? 64 : 112) * kMiB);
    release(chain);
  });
}

void require_normal(const size_t (&sizes)[4]) {
  for (size_t size : sizes) {
    void *block = calloc(1, size);
    REQUIRE(block && subject::is_zero(block, size));
    free(block);
  }
  void *block = malloc(kGiB);
  REQUIRE(block != nullptr);
  free(block);
}

// The number of mappings is exhausted. Adjacent pages of different protection cannot be merged, so
// each one is a mapping.
TEST(Exhaustion, OfMappings) {
  EXPECT_CHILD(250, [] {
    char text[32];
    subject::read_file("/proc/sys/vm/max_map_count", text, sizeof text);
    const size_t most = strtoull(text, nullptr, 10);
    REQUIRE(most < 2000000);
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    static Block *kept[4];
    static const size_t sizes[4] = {100, 10000, 200 * kKiB, 5 * kMiB};
    for (int i = 0; i < 4; i++) {
      kept[i] = nullptr;
      for (int j = 0; j < 10; j++) {
        Block *block = static_cast<Block *>(malloc(sizes[i]));
        *block = Block{kept[i], sizes[i]};
        static_cast<char *>(static_cast<void *>(block))[sizes[i] - 1] = 77;
        kept[i] = block;
      }
    }
    const size_t length = 2 * most * page;
    char *field = static_cast<char *>(mmap(nullptr, length, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    REQUIRE(field != MAP_FAILED);
    size_t at = page;
    while (at < length && mprotect(field + at, page, PROT_READ) == 0) at += 2 * page;
    REQUIRE(at < length && errno == ENOMEM);

    // Now no mapping can be split or added. The case allocates up to the limit and frees in an
    // order that would split mappings; nothing may crash or be lost.
    size_t counts[4];
    Block *chains[4];
    for (int i = 0; i < 4; i++) {
      set_limit(RLIMIT_AS, in_use(RLIMIT_AS) + 64 * kMiB);
      chains[i] = exhaust(sizes[i], &counts[i]);
    }
    for (int i = 0; i < 4; i++) {
      Block **link = &kept[i];
      while (*link && (*link)->next) {  // every other one first
        Block *second = (*link)->next;
        (*link)->next = second->next;
        free(second);
        link = &(*link)->next;
      }
    }
    malloc_trim(0);
    for (int i = 0; i < 4; i++) {
      release(kept[i]);
      release(chains[i]);
    }
    malloc_trim(0);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    munmap(field, length);

    require_normal(sizes);
  });
}

// No descriptor is available: the heap needs none, neither for the first use by a thread nor to
// grow.
TEST(Exhaustion, OfDescriptors) {
  EXPECT_CHILD(250, [] {
    set_limit(RLIMIT_NOFILE, 3);
    REQUIRE(open("/dev/null", O_RDONLY) < 0);
    pthread_t thread;
    auto body = [](void *) -> void * {
      for (size_t size = 1; size < 200 * kMiB; size = size * 5 / 2 + 1) {
        void *block = calloc(1, size);
        REQUIRE(block && (size > 10 * kMiB || subject::is_zero(block, size)));
        block = realloc(block, size * 2);
        REQUIRE(block != nullptr);
        free(block);
      }
      malloc_trim(0);
      return nullptr;
    };
    body(nullptr);
    for (int i = 0; i < 10; i++) {
      REQUIRE(pthread_create(&thread, nullptr, body, nullptr) == 0);
      pthread_join(thread, nullptr);
    }
  });
}

// The program starts without any descriptor, also without 0 to 2, and with a limit of none.
TEST(Exhaustion, OfDescriptorsFromTheStart) {
  const subject::Outcome outcome =
      subject::run_program({SMALL_PROGRAM}, nullptr, 100, [] {
        const struct rlimit none = {3, 3};
        setrlimit(RLIMIT_NOFILE, &none);  // the dynamic linker needs one at a time
        close(0), close(1);
      });
  EXPECT_EQ(outcome.end, "exit 0") << outcome.err;
}

}  // namespace
