// libc's names, linked statically: this whole program, GoogleTest included, uses Cairn.
// cairn_malloc_usable_size dies for a foreign block, so a size proves that the block is Cairn's.

#include <gtest/gtest.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "cairn/heap.h"

extern "C" {
void *__libc_malloc(size_t size);
void __libc_free(void *block);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
int __posix_memalign(void **result, size_t alignment, size_t size);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
}

namespace
{

TEST(Libc, EveryNameIsOurs)
{
    void *first = nullptr;
    void *second = nullptr;
    ASSERT_EQ(posix_memalign(&first, 64, 100), 0);
    ASSERT_EQ(__posix_memalign(&second, 64, 100), 0);
    void *blocks[] = {malloc(100),
                      calloc(1, 100),
                      realloc(nullptr, 100),
                      reallocarray(nullptr, 1, 100),
                      memalign(64, 100),
                      aligned_alloc(64, 128),
                      valloc(100),
                      pvalloc(100),
                      first,
                      second,
                      __libc_malloc(100),
                      __libc_calloc(1, 100),
                      __libc_realloc(nullptr, 100),
                      __libc_memalign(64, 100),
                      __libc_valloc(100),
                      __libc_pvalloc(100)};
    for (size_t i = 0; i < std::size(blocks); i++) {
        ASSERT_NE(blocks[i], nullptr) << i;
        EXPECT_EQ(cairn_malloc_usable_size(blocks[i]), malloc_usable_size(blocks[i]));
        EXPECT_GE(malloc_usable_size(blocks[i]), 100u);
        if (i % 2 == 0)
            free(blocks[i]);
        else
            __libc_free(blocks[i]);
    }
    free_sized(malloc(50), 50);
    free_aligned_sized(aligned_alloc(256, 256), 256, 256);
}

TEST(Libc, BlocksThatLibcMakesAreOurs)
{
    char *copy = strdup("a block of libc's");
    EXPECT_GE(cairn_malloc_usable_size(copy), strlen(copy) + 1);
    free(copy);
    char *line = nullptr;
    ASSERT_GT(asprintf(&line, "%d", 12345), 0);
    EXPECT_GE(cairn_malloc_usable_size(line), 6u);
    cairn_free(line);
}

TEST(Libc, StatisticsAreTheSameUnderBothNames)
{
    const struct mallinfo2 theirs = mallinfo2();
    const struct cairn_mallinfo2 ours = cairn_mallinfo2();
    EXPECT_EQ(theirs.uordblks, ours.uordblks);
    EXPECT_EQ(theirs.arena, ours.arena);
    EXPECT_EQ(theirs.fordblks, ours.fordblks);
    EXPECT_GT(theirs.uordblks, 0u);
    EXPECT_EQ(mallopt(M_ARENA_MAX, 2), 1);
    EXPECT_EQ(mallopt(4711, 2), 0);
    malloc_trim(0);
    EXPECT_EQ(malloc_trim(SIZE_MAX / 2), 0);
}

TEST(Libc, ThreadsOfLibcRunOnIt)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; i++)
        threads.emplace_back([] {
            std::vector<void *> blocks;
            for (size_t size = 1; size < 100000; size = size * 3 / 2 + 1)
                blocks.push_back(malloc(size));
            for (void *block : blocks)
                free(block);
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Libc, FailureSetsErrno)
{
    volatile size_t beyond = SIZE_MAX / 2 + 1;
    errno = 0;
    EXPECT_EQ(malloc(beyond), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(calloc(beyond, 4), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(LibcDeathTest, MisuseDies)
{
    void *block = malloc(40);
    const auto twice = [block] {
        free(block);
        free(block);
    };
    EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "cairn: double free of 0x");
    free(block);
}

} // namespace
