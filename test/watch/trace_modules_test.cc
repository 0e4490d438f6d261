// Text of a trace: mappings are written with the first stack, and again for what was loaded later.
// One process a case.

#include "watch/trace_kit.h"

#include <dlfcn.h>

extern "C" {
#include "watch/trace_file.h"
#include "watch/trace_modules.h"
}

namespace
{

using trace_kit::Place;
using trace_kit::read;

std::string path;

size_t count(const std::string &text, const std::string &what)
{
    size_t found = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        found++;
    return found;
}

TEST(TraceModules, SaysWhatIsLoadedWhenAStackComesThroughIt)
{
    const Place place;
    path = place.path();
    ASSERT_TRUE(trace_file_place(path.data(), path.size(), 0));
    ASSERT_EQ(trace_modules_make(), 0);
    ASSERT_EQ(trace_file_begin(0, 0), 0);
    trace_file_set_state(TRACE_FILE_ON);
    trace_modules_begin();
    std::string file = place.file(getpid());
    EXPECT_EQ(count(read(file).text, "library "), 1U);
    EXPECT_EQ(count(read(file).text, "maps "), 0U);
    uintptr_t base = 0;
    uint32_t stacks = 0;
    const auto own = reinterpret_cast<uintptr_t>(&count);
    if (os_locate(own, &base) == nullptr)
        GTEST_SKIP() << "this libc does not tell where code is from";
    (void)trace_modules_see(&own, 1, &stacks);
    EXPECT_EQ(count(read(file).text, "maps 1\n"), 1U);
    EXPECT_EQ(count(read(file).text, "/trace_modules_test\n"), 1U);
    (void)trace_modules_see(&own, 1, &stacks);
    EXPECT_EQ(count(read(file).text, "maps "), 1U);
    const uintptr_t nowhere = 16;
    (void)trace_modules_see(&nowhere, 1, &stacks);
    EXPECT_EQ(count(read(file).text, "maps "), 1U);
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library == nullptr)
        GTEST_SKIP() << "no library to load";
    const auto late = reinterpret_cast<uintptr_t>(dlsym(library, "zlibVersion")) + 1;
    stacks = 7;
    (void)trace_modules_see(&late, 1, &stacks);
    EXPECT_EQ(count(read(file).text, "maps 8\n"), 1U);
    EXPECT_EQ(count(read(file).text, "maps "), 2U);
    EXPECT_EQ(count(read(file).text, "libz.so"), 1U);
}

} // namespace
