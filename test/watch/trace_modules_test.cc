// The text of a trace: mappings are written with the first stack, and again for libraries that are
// loaded later. Each case needs a process of its own.

#include "watch/trace_kit.h"

#include <dlfcn.h>
#include <errno.h>

#include "base/stopped_thread.h"

extern "C" {
#include "os/module.h"
#include "watch/trace_file.h"
#include "watch/trace_stacks.h"
}

namespace trace_modules_test
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

void begin(const Place &place)
{
    path = place.path();
    ASSERT_TRUE(trace_file_place(path.data(), path.size(), 0));
    ASSERT_EQ(trace_modules_make(), 0);
    ASSERT_EQ(trace_file_begin(0, 0), 0);
    trace_file_set_state(TRACE_FILE_ON);
    trace_modules_begin();
}

TEST(TraceModules, SaysWhatIsLoadedWhenAStackComesThroughIt)
{
    const Place place;
    begin(place);
    std::string file = place.file(getpid());
    EXPECT_EQ(count(read(file).text, "library "), 1U);
    EXPECT_EQ(count(read(file).text, "maps "), 0U);
    uintptr_t base = 0;
    uint32_t stacks = 0;
    const auto own = reinterpret_cast<uintptr_t>(&count);
    if (os_locate(own, &base) == nullptr)
        GTEST_SKIP() << "this libc does not provide the file of an address";
    (void)trace_modules_see(&own, 1, &stacks);
    EXPECT_EQ(count(read(file).text, "maps 1\n"), 1U);
    EXPECT_EQ(count(read(file).text, "/" + std::string(program_invocation_short_name) + "\n"), 1U);
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

// A thread that finds a file known may number its stack at once: the mappings that another thread
// is writing must hold for that stack. The other thread is stopped after each instruction.
TEST(TraceModules, MappingsHoldForAStackThatIsNumberedMeanwhile)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    const Place place;
    begin(place);
    const auto own = reinterpret_cast<uintptr_t>(&count);
    uintptr_t base = 0;
    if (os_locate(own, &base) == nullptr)
        GTEST_SKIP() << "this libc does not provide the file of an address";
    bool was_writing = false;
    int known = 0;
    for (size_t n = 1; known < 3; n++) {
        ASSERT_LT(n, 5000U);
        uint32_t stacks = 0;
        trace_modules_begin();
        stopped_thread::StoppedThread writer([&] { trace_modules_see(&own, 1, &stacks); });
        ASSERT_TRUE(writer.stop_after(n));
        const bool seen = trace_modules_see(&own, 1, &stacks);
        if (seen)
            stacks++; // this thread numbers its stack
        writer.finish();
        if (seen && was_writing) {
            known++;
            EXPECT_EQ(count(read(place.file(getpid())).text, "maps 2\n"), 0U);
        }
        was_writing = was_writing || !seen;
    }
}

} // namespace trace_modules_test
