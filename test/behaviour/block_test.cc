// The properties of a block: unique, aligned, writable to its last usable byte, zero from calloc,
// kept by realloc; and the effect of the calls on errno.

#include <gtest/gtest.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include <algorithm>
#include <set>
#include <vector>

#include "subject.h"

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);
void __libc_free(void *);
}

namespace {

using subject::fill;
using subject::holds;
using subject::is_zero;
using subject::kKiB;
using subject::kMiB;
using subject::opaque;

// Sizes at, below and above every power of two up to `most`, and some between them.
std::vector<size_t> interesting_sizes(size_t most) {
  std::set<size_t> sizes;
  for (size_t size = 0; size <= 136; size++) sizes.insert(size);
  for (size_t power = 128; power <= most; power *= 2) {
    for (size_t part = 0; part < 8; part++) {
      const size_t at = power + power / 8 * part;
      for (size_t size : {at - 1, at, at + 1}) {
        if (size <= most) sizes.insert(size);
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

TEST(Block, ZeroSizedAreUnique) {
  std::set<void *> seen;
  for (int i = 0; i < 1000; i++) {
    void *aligned = nullptr;
    ASSERT_EQ(posix_memalign(&aligned, 64, 0), 0);
    for (void *block : {malloc(0), calloc(0, 8), calloc(8, 0), realloc(nullptr, 0),
                        reallocarray(nullptr, 0, 8), memalign(32, 0), aligned}) {
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(seen.insert(block).second) << "handed out twice";
    }
  }
  for (void *block : {valloc(0), pvalloc(0)}) {
    ASSERT_NE(block, nullptr);
    ASSERT_TRUE(seen.insert(block).second);
  }
  for (void *block : seen) free(block);
}

TEST(Block, AlignedAsC23Says) {
  for (size_t size : interesting_sizes(4 * kMiB)) {
    const size_t alignment = size > 8 ? 16 : 8;
    for (void *block : {malloc(size), calloc(1, size), realloc(nullptr, size)}) {
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
      free(block);
    }
    void *grown = realloc(malloc(1), size ? size : 1);
    ASSERT_NE(grown, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(grown) % alignment, 0u) << size;
    free(grown);
  }
}

TEST(Block, EveryUsableByteIsWritable) {
  constexpr unsigned kBlocks = 40;
  for (size_t size : interesting_sizes(300 * kKiB)) {
    void *blocks[kBlocks];
    for (unsigned i = 0; i < kBlocks; i++) {
      blocks[i] = malloc(size);
      ASSERT_NE(blocks[i], nullptr);
      ASSERT_GE(malloc_usable_size(blocks[i]), size);
      // Beyond the requested size it is enough to check the first and last bytes.
      const size_t usable = malloc_usable_size(blocks[i]);
      fill(blocks[i], std::min<size_t>(usable, 4096), i);
      if (usable > 4096) fill(static_cast<char *>(blocks[i]) + usable - 64, 64, i);
    }
    for (unsigned i = 0; i < kBlocks; i++) {
      const size_t usable = malloc_usable_size(blocks[i]);
      ASSERT_TRUE(usable > 4096 || holds(blocks[i], usable, i)) << size << ": blocks overlap";
      ASSERT_TRUE(usable <= 4096 || holds(static_cast<char *>(blocks[i]) + usable - 64, 64, i))
          << size << ": blocks overlap";
    }
    for (void *block : blocks) free(block);
  }
  EXPECT_EQ(malloc_usable_size(nullptr), 0u);
}

TEST(Block, AlignedBlocks) {
  const size_t sizes[] = {0, 1, 16, 100, 1000, 4096, 5000, 70000, 300000};
  std::vector<void *> kept;
  for (size_t alignment = 1; alignment <= 8 * kMiB; alignment *= 2) {
    for (size_t size : sizes) {
      void *posix = nullptr;
      if (alignment >= sizeof(void *)) {
        ASSERT_EQ(posix_memalign(&posix, alignment, size), 0) << alignment << ' ' << size;
      }
      for (void *block : {memalign(alignment, size), aligned_alloc(alignment, size), posix}) {
        if (alignment < sizeof(void *) && !block) continue;
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
        ASSERT_GE(malloc_usable_size(block), size);
        fill(block, malloc_usable_size(block), static_cast<unsigned>(size));
        ASSERT_TRUE(holds(block, malloc_usable_size(block), static_cast<unsigned>(size)));
        kept.push_back(block);
      }
    }
    // realloc accepts an aligned block.
    void *block = memalign(alignment, 1000);
    fill(block, 1000, 9);
    block = realloc(block, 100000);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(holds(block, 1000, 9));
    block = realloc(block, 10);
    EXPECT_TRUE(holds(block, 10, 9));
    kept.push_back(block);
  }
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end()), kept.end());
  for (void *block : kept) free(block);
}

TEST(Block, CallocIsZeroAfterReuse) {
  for (size_t size : interesting_sizes(2 * kMiB)) {
    constexpr size_t kBlocks = 12;
    void *blocks[kBlocks];
    for (void *&block : blocks) {
      block = malloc(size);
      memset(block, 0xa5, malloc_usable_size(block));
    }
    for (void *block : blocks) free(block);
    for (void *&block : blocks) {
      block = calloc(1, size);
      ASSERT_TRUE(is_zero(block, size)) << size;
      memset(block, 0x5a, malloc_usable_size(block));
    }
    for (void *block : blocks) free(block);
  }
}

// Memory that changes its kind: dirty small blocks are freed and become large calloc blocks, and
// the reverse; a trim between them purges some pages but not all.
TEST(Block, CallocIsZeroAcrossKinds) {
  const size_t sizes[] = {24, 500, 3000, 20000, 100000, 700000, 5 * kMiB};
  for (int round = 0; round < 6; round++) {
    for (size_t dirty : sizes) {
      std::vector<void *> blocks;
      for (size_t total = 0; total < 6 * kMiB; total += dirty) {
        blocks.push_back(malloc(dirty));
        memset(blocks.back(), 0xff, dirty);
      }
      for (void *block : blocks) free(block);
      if (round % 3 == 1) malloc_trim(0);
      for (size_t clean : sizes) {
        void *block = calloc(clean, 1);
        ASSERT_TRUE(is_zero(block, clean)) << "round " << round << ": " << dirty << ", " << clean;
        memset(block, 0xff, clean);
        free(block);
      }
    }
  }
}

TEST(Block, ReallocKeepsContents) {
  const size_t sizes[] = {1, 8, 9, 16, 100, 1000, 1024, 1025, 4096, 10000, 65536, 100000, 131072,
                          131073, 200000, kMiB, 3 * kMiB, 9 * kMiB};
  for (size_t from : sizes) {
    for (size_t to : sizes) {
      void *block = malloc(from);
      void *beside = malloc(from);  // prevents growth in place at times
      ASSERT_NE(block, nullptr);
      fill(block, from, 5);
      fill(beside, from, 6);
      block = realloc(block, to);
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(holds(block, std::min(from, to), 5)) << from << " to " << to;
      ASSERT_GE(malloc_usable_size(block), to);
      fill(block, to, 7);
      ASSERT_TRUE(holds(beside, from, 6)) << from << " to " << to;
      block = reallocarray(block, from, 1);
      ASSERT_TRUE(holds(block, std::min(from, to), 7)) << to << " back to " << from;
      free(block);
      free(beside);
    }
  }
}

TEST(Block, ReallocToZeroFrees) {
  for (size_t size : {size_t{1}, size_t{24}, size_t{1000}, 64 * kKiB, kMiB}) {
    const long before = subject::rss_kib();
    const size_t rounds = std::max<size_t>(1000, 512 * kMiB / size > 20000 ? 20000
                                                                           : 512 * kMiB / size);
    for (size_t i = 0; i < rounds; i++) {
      char *block = static_cast<char *>(malloc(size));
      ASSERT_NE(block, nullptr);
      memset(block, 1, size);
      errno = 4321;
      ASSERT_EQ(i % 2 ? realloc(block, opaque(size_t{0})) : reallocarray(block, 0, 8), nullptr);
      ASSERT_EQ(errno, 4321);
    }
    EXPECT_LT(subject::rss_kib() - before, static_cast<long>(rounds * size / kKiB / 4 + 8 * kKiB))
        << "realloc to 0 does not free blocks of " << size;
  }
}

// POSIX 2024: free() does not change errno. Cairn guarantees that for every call that succeeds.
TEST(Block, SuccessKeepsErrno) {
  for (int round = 0; round < 3; round++) {
    for (size_t size : interesting_sizes(8 * kMiB)) {
      errno = 4321;
      void *block = malloc(size);
      ASSERT_EQ(errno, 4321) << size;
      block = realloc(block, size * 2 + 1);
      ASSERT_EQ(errno, 4321) << size;
      free(block);
      ASSERT_EQ(errno, 4321) << size;
      block = calloc(1, size);
      ASSERT_EQ(errno, 4321) << size;
      void *aligned = memalign(64, size);
      ASSERT_EQ(errno, 4321) << size;
      malloc_usable_size(aligned);
      free(block);
      free(aligned);
      ASSERT_EQ(errno, 4321) << size;
      free(nullptr);
      ASSERT_EQ(errno, 4321);
    }
    errno = 4321;
    malloc_trim(0);
    EXPECT_EQ(errno, 4321);
  }
}

// Programs and old C++ runtimes that call the libc's internal names must get the same heap.
TEST(Block, InnerNamesOfTheLibc) {
  void *(*const calls[])() = {
      [] { return __libc_malloc(100); },         [] { return __libc_calloc(10, 10); },
      [] { return __libc_realloc(malloc(5), 100); }, [] { return __libc_memalign(64, 100); },
      [] { return __libc_valloc(100); },         [] { return __libc_pvalloc(100); },
  };
  for (auto call : calls) {
    void *block = call();
    ASSERT_NE(block, nullptr);
    EXPECT_GE(malloc_usable_size(block), 100u);
    memset(block, 1, 100);
    free(block);
    block = realloc(call(), 3000);
    ASSERT_NE(block, nullptr);
    __libc_free(block);
  }
  __libc_free(malloc(1000));
}

// Blocks that the libc allocates internally can be freed by the program.
TEST(Block, FromInsideTheLibc) {
  for (int i = 0; i < 1000; i++) {
    char *text = nullptr;
    ASSERT_GT(asprintf(&text, "%0*d", i + 1, i), 0);
    char *copy = strdup(text);
    EXPECT_STREQ(copy, text);
    free(text);
    free(copy);
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    ASSERT_NE(memory, nullptr);
    for (int line = 0; line < i; line++) fprintf(memory, "line %d\n", line);
    fclose(memory);
    free(realloc(text, size + 1));
    wchar_t *wide = wcsdup(L"wide");
    free(wide);
  }
  free(getcwd(nullptr, 0));
  free(realpath("/proc/self", nullptr));
  FILE *file = fopen("/proc/self/maps", "re");
  ASSERT_NE(file, nullptr);
  char *line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, file) > 0) {
  }
  free(line);
  fclose(file);
}

}  // namespace
