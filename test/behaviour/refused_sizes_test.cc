// Requests that no allocator can serve: every entry point must refuse them with NULL and ENOMEM (or
// EINVAL, or a valid block, where the system's libc does so).

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <string.h>

#include "subject.h"

namespace {

using subject::opaque;

struct Entry {
  const char *name;
  void *(*call)(size_t size);
};

const Entry kEntries[] = {
    {"malloc", [](size_t n) { return malloc(n); }},
    {"calloc(1, n)", [](size_t n) { return calloc(1, n); }},
    {"calloc(n, 1)", [](size_t n) { return calloc(n, 1); }},
    {"realloc(NULL, n)", [](size_t n) { return realloc(nullptr, n); }},
    {"reallocarray(NULL, n, 1)", [](size_t n) { return reallocarray(nullptr, n, 1); }},
    {"reallocarray(NULL, 1, n)", [](size_t n) { return reallocarray(nullptr, 1, n); }},
    {"memalign(8, n)", [](size_t n) { return memalign(8, n); }},
    {"memalign(16, n)", [](size_t n) { return memalign(16, n); }},
    {"memalign(4096, n)", [](size_t n) { return memalign(4096, n); }},
    {"memalign(2 MiB, n)", [](size_t n) { return memalign(2 * subject::kMiB, n); }},
    {"memalign(1 GiB, n)", [](size_t n) { return memalign(subject::kGiB, n); }},
    {"aligned_alloc(64, n)", [](size_t n) { return aligned_alloc(64, n); }},
    {"valloc", [](size_t n) { return valloc(n); }},
    {"pvalloc", [](size_t n) { return pvalloc(n); }},
};

// Sizes beyond any address space, around every wrap that rounding up could cause.
const size_t kImpossible[] = {
    SIZE_MAX,
    SIZE_MAX - 1,
    SIZE_MAX - 7,
    SIZE_MAX - 15,
    SIZE_MAX - 16,
    SIZE_MAX - 4094,
    SIZE_MAX - 4095,
    SIZE_MAX - 4096,
    SIZE_MAX - 65535,
    SIZE_MAX - 65536,
    SIZE_MAX - 2 * subject::kMiB,
    SIZE_MAX - subject::kGiB,
    SIZE_MAX / 2 + 2,
    static_cast<size_t>(PTRDIFF_MAX) + 1,
    PTRDIFF_MAX,
    PTRDIFF_MAX - 1,
    PTRDIFF_MAX - 15,
    PTRDIFF_MAX - 4095,
    PTRDIFF_MAX - 65535,
    PTRDIFF_MAX - 2 * subject::kMiB,
    size_t{1} << 62,
    size_t{1} << 56,
    size_t{1} << 48,
};

TEST(Limits, ImpossibleSizes) {
  for (const Entry &entry : kEntries) {
    for (size_t size : kImpossible) {
      errno = 0;
      void *block = entry.call(opaque(size));
      EXPECT_EQ(block, nullptr) << entry.name << " of " << size;
      EXPECT_EQ(errno, ENOMEM) << entry.name << " of " << size;
    }
  }
}

struct Product {
  size_t count, size;
};
const Product kOverflowing[] = {
    {SIZE_MAX, 2},
    {2, SIZE_MAX},
    {SIZE_MAX, SIZE_MAX},
    {SIZE_MAX / 2 + 1, 2},
    {2, SIZE_MAX / 2 + 1},
    {size_t{1} << 32, size_t{1} << 32},
    {(size_t{1} << 32) + 1, size_t{1} << 32},  // product modulo 2^64 is 2^32
    {SIZE_MAX / 16 + 2, 16},                   // product modulo 2^64 is 16
    {16, SIZE_MAX / 16 + 2},
    {SIZE_MAX / 3 + 1, 3},
    {0x8000000000000001u, 2},
    {PTRDIFF_MAX, 2},  // fits size_t, above PTRDIFF_MAX
    {size_t{1} << 31, size_t{1} << 32},
};

TEST(Limits, OverflowingProducts) {
  for (const Product &product : kOverflowing) {
    errno = 0;
    EXPECT_EQ(calloc(opaque(product.count), opaque(product.size)), nullptr)
        << product.count << " x " << product.size;
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(reallocarray(nullptr, opaque(product.count), opaque(product.size)), nullptr)
        << product.count << " x " << product.size;
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST(Limits, FailedReallocKeepsTheBlock) {
  const size_t sizes[] = {1, 8, 40, 1000, 5000, 40000, 200000, 3 * subject::kMiB};
  for (size_t size : sizes) {
    void *block = malloc(size);
    ASSERT_NE(block, nullptr);
    subject::fill(block, size, 1);
    for (size_t impossible : kImpossible) {
      errno = 0;
      EXPECT_EQ(realloc(block, opaque(impossible)), nullptr) << size << " to " << impossible;
      EXPECT_EQ(errno, ENOMEM);
    }
    for (const Product &product : kOverflowing) {
      errno = 0;
      EXPECT_EQ(reallocarray(block, opaque(product.count), opaque(product.size)), nullptr);
      EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_TRUE(subject::holds(block, size, 1)) << size;
    EXPECT_GE(malloc_usable_size(block), size);
    block = realloc(block, size + 100);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(subject::holds(block, size, 1)) << size;
    free(block);
  }
}

TEST(Limits, PosixMemalignRefusals) {
  const size_t bad[] = {0, 1, 2, 3, 4, 7, 9, 12, 24, 48, 100, 4095, 4097, SIZE_MAX,
                        (size_t{1} << 63) + 1};
  for (size_t alignment : bad) {
    void *unchanged = &unchanged;
    errno = 1234;
    EXPECT_EQ(posix_memalign(&unchanged, opaque(alignment), 16), EINVAL) << alignment;
    EXPECT_EQ(unchanged, &unchanged);
    EXPECT_EQ(errno, 1234);
  }
  for (size_t alignment : {size_t{8}, size_t{16}, size_t{4096}, 2 * subject::kMiB}) {
    for (size_t size : kImpossible) {
      void *unchanged = &unchanged;
      EXPECT_EQ(posix_memalign(&unchanged, alignment, opaque(size)), ENOMEM) << size;
      EXPECT_EQ(unchanged, &unchanged);
    }
  }
}

// The manual: "posix_memalign() does not set errno". (glibc 2.36 does.)
TEST(Limits, PosixMemalignLeavesErrnoAlone) {
  void *block = nullptr;
  errno = 1234;
  EXPECT_EQ(posix_memalign(&block, 64, opaque(SIZE_MAX)), ENOMEM);
  EXPECT_EQ(errno, 1234);
  EXPECT_EQ(posix_memalign(&block, opaque(size_t{1} << 62), 64), ENOMEM);
  EXPECT_EQ(errno, 1234);
}

// Each power of two as an alignment: the result is an aligned block, or NULL and ENOMEM. From 2^48
// on no address can be aligned.
TEST(Limits, EveryPowerOfTwoAsAlignment) {
  const size_t sizes[] = {0, 1, 100, 4096, 100000, subject::kMiB, size_t{1} << 46, size_t{1} << 62};
  for (int shift = 0; shift < 64; shift++) {
    const size_t alignment = opaque(size_t{1} << shift);
    for (size_t size : sizes) {
      for (auto call : {&memalign, &aligned_alloc}) {
        errno = 0;
        void *block = call(alignment, opaque(size));
        if (block) {
          EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << shift;
          EXPECT_GE(malloc_usable_size(block), size);
          EXPECT_LT(shift, 48);
          if (size) memset(block, 1, size < 100000 ? size : 100000);
          free(block);
        } else {
          EXPECT_EQ(errno, ENOMEM) << "2^" << shift << ", " << size;
          EXPECT_TRUE(shift > 30 || size > subject::kMiB) << "2^" << shift << ", " << size;
        }
      }
      if (shift < 3) continue;
      void *block = nullptr;
      int error = posix_memalign(&block, alignment, opaque(size));
      EXPECT_TRUE(error == 0 ? block != nullptr : error == ENOMEM) << shift;
      if (error == 0) free(block);
    }
  }
}

bool is_power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

using Aligning = void *(*)(size_t alignment, size_t size);

// The libc's own function, also if another malloc is preloaded or linked in.
Aligning of_libc(const char *name) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return libc ? reinterpret_cast<Aligning>(dlsym(libc, name)) : nullptr;
}

// Alignments that are no power of two: the result is that of the libc that the program was written
// for. aligned_alloc is an exception, tested below.
TEST(Limits, OddAlignmentsAsTheLibc) {
  const size_t alignments[] = {0,  1,  2,   3,   5,    6,    7,     9,     12,    15,     17,
                               24, 31, 33,  48,  63,   65,   100,   1000,  4095,  4097,   10000,
                               65535, 65537, 100000, (size_t{1} << 62) + 1,
                               (size_t{1} << 63) - 1, size_t{1} << 63, (size_t{1} << 63) + 1,
                               SIZE_MAX - 1, SIZE_MAX};
  const size_t sizes[] = {0, 1, 8, 100, 4096, 5000, 200000, SIZE_MAX, PTRDIFF_MAX};
  struct {
    const char *name;
    Aligning ours;
  } const functions[] = {{"memalign", &memalign}, {"aligned_alloc", &aligned_alloc}};

  for (const auto &function : functions) {
    Aligning libc = of_libc(function.name);
    ASSERT_NE(libc, nullptr);
    for (size_t alignment : alignments) {
      if (function.ours == &aligned_alloc && !is_power_of_two(alignment)) continue;
      for (size_t size : sizes) {
        SCOPED_TRACE(std::string(function.name) + "(" + std::to_string(alignment) + ", " +
                     std::to_string(size) + ")");
        errno = 0;
        void *expected = libc(opaque(alignment), opaque(size));
        const int expected_errno = errno;
        errno = 0;
        void *block = function.ours(opaque(alignment), opaque(size));
        const int got_errno = errno;
        // The libc's block is not freed, since its free() must not be called here.
        if (expected) {
          ASSERT_NE(block, nullptr);
          size_t power = 1;
          while (power < alignment) power *= 2;
          EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % power, 0u);
          EXPECT_GE(malloc_usable_size(block), size);
          memset(block, 1, size);
          free(block);
        } else if (expected_errno == EINVAL && block) {
          free(block);  // newer libcs refuse more; a block is allowed
        } else {
          EXPECT_EQ(block, nullptr);
          EXPECT_EQ(got_errno, expected_errno);
        }
      }
    }
  }
}

// Required by C17 since its defect report 460, by C23, and by glibc from 2.38 on.
TEST(Limits, AlignedAllocRefusesOddAlignments) {
  for (size_t alignment : {size_t{0}, size_t{3}, size_t{24}, size_t{4097}, size_t{65535},
                           (size_t{1} << 63) + 1, SIZE_MAX}) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{200000}, SIZE_MAX}) {
      errno = 0;
      EXPECT_EQ(aligned_alloc(opaque(alignment), opaque(size)), nullptr) << alignment;
      EXPECT_EQ(errno, EINVAL) << alignment << ", " << size;
    }
  }
}

// pvalloc rounds up to whole pages; the rounding must happen and must not wrap.
TEST(Limits, PvallocRounds) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t size : {size_t{1}, page - 1, page, page + 1, 100 * page + 1}) {
    void *block = pvalloc(size);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % page, 0u);
    const size_t rounded = (size + page - 1) / page * page;
    EXPECT_GE(malloc_usable_size(block), rounded);
    memset(block, 1, rounded);
    free(block);
    block = valloc(size);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % page, 0u);
    free(block);
  }
  for (size_t size : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - page + 2, SIZE_MAX - page}) {
    errno = 0;
    EXPECT_EQ(pvalloc(opaque(size)), nullptr) << size;
    EXPECT_EQ(errno, ENOMEM);
  }
}

// A refusal must not break later calls.
TEST(Limits, WorksOnAfterRefusals) {
  for (int round = 0; round < 1000; round++) {
    EXPECT_EQ(malloc(opaque(SIZE_MAX - static_cast<size_t>(round))), nullptr);
    void *block = malloc(static_cast<size_t>(round) * 37 + 1);
    ASSERT_NE(block, nullptr);
    subject::fill(block, static_cast<size_t>(round) * 37 + 1, 3);
    EXPECT_EQ(calloc(opaque(SIZE_MAX / 2), 4), nullptr);
    EXPECT_TRUE(subject::holds(block, static_cast<size_t>(round) * 37 + 1, 3));
    free(block);
  }
}

}  // namespace
