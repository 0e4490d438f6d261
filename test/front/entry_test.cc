// Entry points: arguments that cannot be served, unusual ones that glibc accepts, and errno.

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

extern "C" {
#include "front/entry.h"
#include "os/fault.h"
#include "os/memory.h"
}

namespace entry_test
{

constexpr int kErrno = 4321;
constexpr size_t kBeyond = SIZE_MAX / 2 + 1;

// Calls with a value of errno that no function sets.
template <typename Body> auto with_errno(Body body)
{
    errno = kErrno;
    return body();
}

void expect_success(void *block, const char *what)
{
    EXPECT_NE(block, nullptr) << what;
    EXPECT_EQ(errno, kErrno) << what;
    errno = kErrno;
    entry_free(block);
    EXPECT_EQ(errno, kErrno) << "free after " << what;
}

TEST(Entry, SuccessKeepsErrno)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{5000}, size_t{100} << 10, size_t{40} << 20}) {
        expect_success(with_errno([=] { return entry_malloc(size); }), "malloc");
        expect_success(with_errno([=] { return entry_calloc(1, size); }), "calloc");
        expect_success(with_errno([=] { return entry_realloc(nullptr, size); }), "realloc");
        expect_success(with_errno([=] { return entry_reallocarray(nullptr, 1, size); }),
                       "reallocarray");
        expect_success(with_errno([=] { return entry_memalign(64, size); }), "memalign");
        expect_success(with_errno([=] { return entry_valloc(size); }), "valloc");
        expect_success(with_errno([=] { return entry_pvalloc(size); }), "pvalloc");
    }
}

void expect_failure(void *block, const char *what)
{
    EXPECT_EQ(block, nullptr) << what;
    EXPECT_EQ(errno, ENOMEM) << what;
}

TEST(Entry, FailureIsNullAndEnomem)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - 4096, kBeyond, size_t{1} << 60}) {
        expect_failure(with_errno([=] { return entry_malloc(size); }), "malloc");
        expect_failure(with_errno([=] { return entry_calloc(1, size); }), "calloc");
        expect_failure(with_errno([=] { return entry_realloc(nullptr, size); }), "realloc");
        expect_failure(with_errno([=] { return entry_memalign(64, size); }), "memalign");
        expect_failure(with_errno([=] { return entry_valloc(size); }), "valloc");
        expect_failure(with_errno([=] { return entry_pvalloc(size); }), "pvalloc");
        void *untouched = &untouched;
        EXPECT_EQ(with_errno([&] { return entry_posix_memalign(&untouched, 64, size); }), ENOMEM);
        EXPECT_EQ(untouched, &untouched);
        EXPECT_EQ(errno, kErrno) << "posix_memalign only returns its error";
    }
    expect_failure(with_errno([] { return entry_memalign(size_t{1} << 62, 1); }), "memalign");
}

TEST(Entry, ProductsThatOverflowAreRefused)
{
    for (size_t count : {SIZE_MAX, SIZE_MAX / 2 + 2, size_t{1} << 32}) {
        const size_t size = count > SIZE_MAX / 2 ? 2 : size_t{1} << 32;
        expect_failure(with_errno([=] { return entry_calloc(count, size); }), "calloc");
        expect_failure(with_errno([=] { return entry_calloc(size, count); }), "calloc");
        expect_failure(with_errno([=] { return entry_reallocarray(nullptr, count, size); }),
                       "reallocarray");
    }
}

TEST(Entry, AFailedReallocKeepsTheBlock)
{
    char *block = static_cast<char *>(entry_malloc(100));
    memset(block, 5, 100);
    expect_failure(with_errno([=] { return entry_realloc(block, kBeyond); }), "realloc");
    expect_failure(with_errno([=] { return entry_reallocarray(block, kBeyond, 2); }), "array");
    EXPECT_EQ(block[99], 5);
    entry_free(block);
}

TEST(Entry, ReallocToNothingFrees)
{
    void *block = entry_malloc(100);
    EXPECT_EQ(with_errno([=] { return entry_realloc(block, 0); }), nullptr);
    EXPECT_EQ(errno, kErrno);
    EXPECT_EXIT(entry_free(block), testing::KilledBySignal(SIGABRT), "double free");
    block = entry_malloc(100);
    EXPECT_EQ(entry_reallocarray(block, 7, 0), nullptr);
    EXPECT_EXIT(entry_free(block), testing::KilledBySignal(SIGABRT), "double free");
}

TEST(Entry, OddAlignments)
{
    void *block = nullptr;
    for (size_t bad :
         {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{12}, size_t{24}, SIZE_MAX}) {
        EXPECT_EQ(with_errno([&] { return entry_posix_memalign(&block, bad, 8); }), EINVAL) << bad;
        EXPECT_EQ(errno, kErrno);
        EXPECT_EQ(block, nullptr);
    }
    for (size_t odd : {size_t{0}, size_t{1}, size_t{3}, size_t{24}, size_t{100}, size_t{5000}}) {
        size_t power = 1;
        while (power < odd)
            power *= 2;
        void *aligned = entry_memalign(odd, 100);
        ASSERT_NE(aligned, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % power, 0u) << odd;
        entry_free(aligned);
    }
    EXPECT_EQ(with_errno([] { return entry_memalign(SIZE_MAX, 8); }), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST(Entry, PageAlignedOnes)
{
    const size_t page = os_page_size();
    for (size_t size : {size_t{0}, size_t{1}, page, page + 1, 100 * page}) {
        void *block = entry_valloc(size);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % page, 0u);
        entry_free(block);
        block = entry_pvalloc(size);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % page, 0u);
        EXPECT_GE(entry_usable_size(block), std::max(page, (size + page - 1) / page * page));
        entry_free(block);
    }
}

TEST(Entry, NullIsNoBlock)
{
    EXPECT_EQ(entry_usable_size(nullptr), 0u);
    entry_free(nullptr);
    entry_free_sized(nullptr, 100, 1);
}

TEST(Entry, RefusalsOfTheKernelAreEnomem)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    void *kept = entry_malloc(50 << 20);
    for (int error : {EPERM, EAGAIN, EACCES}) {
        os_fault_plan(0, SIZE_MAX / 2, error);
        expect_failure(with_errno([] { return entry_malloc(size_t{90} << 20); }), "malloc");
        expect_failure(with_errno([] { return entry_calloc(9, size_t{10} << 20); }), "calloc");
        expect_failure(with_errno([=] { return entry_realloc(kept, size_t{90} << 20); }),
                       "realloc");
        expect_failure(with_errno([] { return entry_memalign(64, size_t{90} << 20); }), "memalign");
        expect_failure(with_errno([] { return entry_valloc(size_t{90} << 20); }), "valloc");
        expect_failure(with_errno([] { return entry_pvalloc(size_t{90} << 20); }), "pvalloc");
        os_fault_plan(0, 0, 0);
    }
    entry_free(kept);
}

} // namespace entry_test
