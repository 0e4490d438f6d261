// Where there can be no groups, that is said once, and the heap is as it was. What groups do is
// tested with the library as a program has it: test/tools/sites_test.py.

#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "heap/heap.h"
#include "watch/watch.h"
}

namespace
{

TEST(SiteGroups, AreNoneWhereCairnIsAPartOfTheProgram)
{
    const std::string path = "/no/such/file";
    testing::internal::CaptureStderr();
    sites_start(path.data(), path.size());
    sites_report("");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.rfind("cairn: no sites: ", 0), 0U) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_EQ(heap_watch & WATCH_SITES, 0U);
}

} // namespace
