// errno after failures of the core of TLSF, in builds with a libc.

#include <gtest/gtest.h>

#include <cerrno>

#include "region/tlsf_arena.h"

namespace hosted_tlsf_test
{

using tlsf_test::Arena;
using tlsf_test::kKiB;

TEST(HostedTlsf, NoMemoryIsEnomem)
{
    Arena heap(16 * kKiB);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_alloc(heap, 17 * kKiB), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_NE(cairn_tlsf_alloc(heap, kKiB), nullptr);
    EXPECT_EQ(errno, 0);
}

TEST(HostedTlsf, WhatNoMemoryWouldCureIsEinval)
{
    Arena heap(16 * kKiB);
    errno = 0;
    EXPECT_EQ(cairn_tlsf_alloc_aligned(heap, 8, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

} // namespace hosted_tlsf_test
