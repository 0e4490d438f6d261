// A limit that is set and removed under load: eight threads make mixed calls and check contents,
// while address space or data is limited to little more than the use, and unlimited again, round
// after round. Under the limit calls fail with ENOMEM and lose nothing. Without it every call
// works. No memory is lost over the rounds.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include <atomic>

#include "subject.h"

namespace {

using subject::in_use;
using subject::kKiB;
using subject::kMiB;
using subject::set_limit;

constexpr int kThreads = 8;
constexpr int kRounds = 6;
constexpr size_t kSlots = 400;

pthread_barrier_t g_barrier;
std::atomic<size_t> g_failures;

class Load {
 public:
  explicit Load(unsigned seed) : state_(seed * 2654435761u + 1) {}

  void run(int steps, bool may_fail) {
    for (int i = 0; i < steps; i++) step(may_fail);
  }

  void release_all() {
    for (Slot &slot : slots_) release(slot);
  }

 private:
  struct Slot {
    char *block;
    size_t size;
    unsigned seed;
  };

  unsigned next() { return (state_ = state_ * 1664525 + 1013904223) >> 8; }

  static size_t marked(size_t size) { return size < 256 ? size : 256; }

  static void check(const Slot &slot) {
    const size_t part = marked(slot.size);
    REQUIRE(subject::holds(slot.block, part, slot.seed));
    REQUIRE(slot.size < 512 || subject::holds(slot.block + slot.size - part, part, slot.seed));
  }

  void release(Slot &slot) {
    if (slot.block) check(slot);
    errno = 0;
    free(slot.block);
    REQUIRE(errno == 0);
    slot.block = nullptr;
  }

  void step(bool may_fail) {
    Slot &slot = slots_[next() % kSlots];
    const unsigned kind = next() % 32;
    // Larger than before the limit, so that memory that is already reserved does not suffice.
    const size_t largest = may_fail ? 12 * kMiB : 3 * kMiB;
    const size_t size = 1 + (kind == 0  ? next() % largest
                             : kind < 4 ? next() % (300 * kKiB)
                                        : next() % (kind < 12 ? 30000 : 1500));
    const bool resize = slot.block && kind % 3 == 0;
    if (!resize) release(slot);
    if (slot.block) check(slot);
    errno = 0;
    void *block = resize          ? realloc(slot.block, size)
                  : kind % 3 == 1 ? calloc(1, size)
                  : kind == 5     ? memalign(4096, size)
                                  : malloc(size);
    if (!block) {
      REQUIRE(may_fail && errno == ENOMEM);
      g_failures++;
      if (slot.block) check(slot);
      return;
    }
    if (resize) {
      const size_t kept = marked(size < slot.size ? size : slot.size);
      REQUIRE(subject::holds(block, kept, slot.seed));
    } else if (kind % 3 == 1) {
      REQUIRE(subject::is_zero(block, size));
    }
    slot = {static_cast<char *>(block), size, next()};
    // The start and the end of a block are marked; the middle of a large one is zero, or has its
    // former content.
    const size_t part = marked(size);
    if (size >= 512) subject::fill(slot.block + size - part, part, slot.seed);
    subject::fill(slot.block, part, slot.seed);
  }

  Slot slots_[kSlots] = {};
  unsigned state_;
};

void *work(void *argument) {
  Load load(static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument)));
  for (int round = 0; round < kRounds; round++) {
    load.run(1500, false);
    pthread_barrier_wait(&g_barrier);  // the limit is set
    pthread_barrier_wait(&g_barrier);
    load.run(3000, true);
    pthread_barrier_wait(&g_barrier);  // and removed
    pthread_barrier_wait(&g_barrier);
  }
  load.run(1500, false);
  load.release_all();
  return nullptr;
}

class Pressure : public testing::TestWithParam<int> {};

TEST_P(Pressure, LimitComesAndGoesUnderLoad) {
  const int resource = GetParam();
  EXPECT_CHILD(250, [resource] {
    pthread_barrier_init(&g_barrier, nullptr, kThreads + 1);
    pthread_t threads[kThreads];
    for (uintptr_t i = 0; i < kThreads; i++) {
      REQUIRE(pthread_create(&threads[i], nullptr, work, reinterpret_cast<void *>(i)) == 0);
    }
    size_t after_first = 0;
    for (int round = 0; round < kRounds; round++) {
      pthread_barrier_wait(&g_barrier);
      const size_t used = in_use(resource);
      if (round == 1) after_first = used;
      // A little more, or less, than the use.
      set_limit(resource, round % 2 == 0 ? used + kMiB : used - used / 4);
      const size_t failures = g_failures;
      pthread_barrier_wait(&g_barrier);
      pthread_barrier_wait(&g_barrier);
      set_limit(resource, RLIM_INFINITY);
      if (g_failures == failures) fprintf(stderr, "round %d: the limit was not felt\n", round);
      REQUIRE(g_failures > failures || round > 0);
      pthread_barrier_wait(&g_barrier);
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    malloc_trim(0);
    const size_t at_end = in_use(resource);
    if (at_end > after_first + after_first / 2) {
      fprintf(stderr, "%zu MiB after the first round, %zu at the end\n", after_first / kMiB,
              at_end / kMiB);
      _exit(subject::kFailedExit);
    }
    if (subject::rss_kib() > 40 * 1024) {
      fprintf(stderr, "%ld KiB resident after all was freed\n", subject::rss_kib());
      _exit(subject::kFailedExit);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Limits, Pressure, testing::Values(RLIMIT_AS, RLIMIT_DATA),
                         [](const testing::TestParamInfo<int> &of) {
                           return of.param == RLIMIT_AS ? "AddressSpace" : "Data";
                         });

}  // namespace
