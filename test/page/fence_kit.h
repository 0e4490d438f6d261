// Helpers of the tests of fences: whether an access faults.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "page/page_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace fence_kit
{

inline void touch(volatile char *at) { *at = 1; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReportsFaults = true; // the sanitizer's handler reports the fault and exits
#else
constexpr bool kReportsFaults = false;
#endif

inline bool faulted(int status)
{
    return kReportsFaults ? WIFEXITED(status) && WEXITSTATUS(status) != 0
                          : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

inline void expect_fenced(char *start, size_t bytes)
{
    ASSERT_NE(start, nullptr);
    memset(start, 1, bytes);
    if (CAIRN_TEST_EMULATED && os_page_size() != PAGE_BYTES)
        return; // qemu lets accesses pass where its pages are larger than those of its host
    const char *report = kReportsFaults ? "SEGV" : "";
    EXPECT_EXIT(touch(start - 1), faulted, report);
    EXPECT_EXIT(touch(start + bytes), faulted, report);
}

} // namespace fence_kit
