// Start and end: this program defines cairn_options, and starts itself with CAIRN_OPTIONS set.

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "cairn/heap.h"

extern "C" {
#include "page/state.h"
}

extern "C" const char *cairn_options;
const char *cairn_options = "decay_ms:1234,dirty_cap:5M";

namespace
{

// What this program, started again with the environment and asked for one case, writes on stderr.
std::string errors_of(const std::string &environment)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return "no /proc";
    path[length] = '\0';
    const std::string command =
        environment + " '" + path + "' --gtest_filter=Start.ReadsTheLinkedOptions 2>&1 >/dev/null";
    FILE *pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c; pipe && (c = fgetc(pipe)) != EOF;)
        text += static_cast<char>(c);
    EXPECT_EQ(pipe ? pclose(pipe) : -1, 0) << command;
    return text;
}

TEST(Start, ReadsTheLinkedOptions)
{
    const char *environment = getenv("CAIRN_OPTIONS");
    if (environment && strstr(environment, "decay_ms:99")) {
        EXPECT_EQ(pages_state.limits.decay_ms, 99u) << "the environment wins";
    } else {
        EXPECT_EQ(pages_state.limits.decay_ms, 1234u);
    }
    EXPECT_EQ(pages_state.limits.dirty_cap_bytes, size_t{5} << 20);
    void *block = cairn_malloc(100);
    EXPECT_NE(block, nullptr);
    cairn_free(block);
}

TEST(Start, IsSilent) { EXPECT_EQ(errors_of("CAIRN_OPTIONS="), ""); }

TEST(Start, TheEnvironmentWins) { EXPECT_EQ(errors_of("CAIRN_OPTIONS=decay_ms:99"), ""); }

TEST(Start, WarnsOfWhatItDoesNotKnow)
{
    EXPECT_EQ(errors_of("CAIRN_OPTIONS=colour:red"),
              "cairn: unknown option \"colour:red\" in CAIRN_OPTIONS, ignored\n");
}

TEST(Start, VerboseTellsTheSettingsAndTheEnd)
{
    const std::string text = errors_of("CAIRN_OPTIONS=verbose:1");
    EXPECT_EQ(text.rfind("cairn: options: decay_ms:1234,dirty_cap:5242880,", 0), 0u) << text;
    EXPECT_NE(text.find("0 bytes in 0 blocks in use"), std::string::npos) << text;
}

} // namespace
