// TLSF behind the common interface: the guarantees of cairn/allocator.h.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "region/tlsf_arena.h"

namespace adapted_tlsf_test
{

using tlsf_test::Arena;
using tlsf_test::fault;
using tlsf_test::kKiB;
using tlsf_test::stats;

class AdaptedTlsf : public testing::TestWithParam<bool>
{
  protected:
    AdaptedTlsf() : heap_(64 * kKiB), shared_(GetParam() ? cairn_tlsf_share(heap_) : nullptr) {}
    ~AdaptedTlsf() override
    {
        if (shared_)
            cairn_tlsf_unshare(shared_);
    }
    cairn_allocator allocator()
    {
        return shared_ ? cairn_tlsf_shared_allocator(shared_) : cairn_tlsf_allocator(heap_);
    }

    Arena heap_;
    cairn_tlsf_shared *shared_;
};

INSTANTIATE_TEST_SUITE_P(Forms, AdaptedTlsf, testing::Bool(),
                         [](const auto &form) { return form.param ? "Shared" : "Plain"; });

TEST_P(AdaptedTlsf, AllocResizeFree)
{
    const size_t before = stats(heap_).free_bytes;
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *block = cairn_allocator_alloc(allocator(), 0, align);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % align, 0u);
        EXPECT_EQ(cairn_allocator_resize(allocator(), block, 0, 500), block);
        memset(block, 1, 500);
        EXPECT_EQ(cairn_allocator_resize(allocator(), block, 500, 10), block);
        cairn_allocator_free(allocator(), block, 10);
    }
    cairn_allocator_free(allocator(), nullptr, 0);
    EXPECT_EQ(cairn_allocator_resize(allocator(), nullptr, 0, 10), nullptr);
    EXPECT_EQ(stats(heap_).free_bytes, before);
}

TEST_P(AdaptedTlsf, Failures)
{
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc(allocator(), 64 * kKiB, 16), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_allocator_alloc(allocator(), 10, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(cairn_allocator_alloc(allocator(), 10, size_t{1} << 40), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void *block = cairn_allocator_alloc(allocator(), 10, 16);
    errno = 0;
    EXPECT_EQ(cairn_allocator_resize(allocator(), block, 10, SIZE_MAX), nullptr);
    EXPECT_EQ(errno, 0);
    cairn_allocator_free(allocator(), block, 10);
}

TEST_P(AdaptedTlsf, Capabilities)
{
    EXPECT_TRUE(cairn_allocator_can(allocator(), CAIRN_CAN_FREE | CAIRN_CAN_RESIZE));
    EXPECT_EQ(cairn_allocator_can(allocator(), CAIRN_ANY_THREAD), GetParam());
    EXPECT_STREQ(allocator().operations->name, GetParam() ? "tlsf_shared" : "tlsf");
}

} // namespace adapted_tlsf_test
