// Start and end: this program defines cairn_options, and starts itself with CAIRN_OPTIONS set.

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "cairn/heap.h"

extern "C" {
#include "page/state.h"
}

extern "C" const char *cairn_options;
const char *cairn_options = "decay_ms:1234,dirty_cap:5M";

namespace
{

// The stderr of this program, started again with the environment for one case.
std::string errors_of(const std::string &environment,
                      const std::string &name = "Start.ReadsTheLinkedOptions")
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return "no /proc";
    path[length] = '\0';
    const std::string command = environment + " " CAIRN_TEST_EMULATOR " '" + path +
                                "' --gtest_filter=" + name + " 2>&1 >/dev/null";
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
        EXPECT_EQ(pages_state.limits.decay_ms, 99u)
            << "the environment overrides the linked options";
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
    EXPECT_EQ(errors_of("CAIRN_OPTIONS=colour:red")
                  .rfind("cairn: unknown option \"colour:red\" in CAIRN_OPTIONS, ignored: ", 0),
              0u);
}

TEST(Start, WarnsOfADumpThatIsNeverWritten)
{
    EXPECT_EQ(errors_of("CAIRN_OPTIONS=profile_file:/tmp/start"),
              "cairn: option profile_file writes no dump while the profiler is off: add "
              "profile:on\n");
    EXPECT_EQ(errors_of("CAIRN_OPTIONS=profile:on,profile_growth:1M"),
              "cairn: option profile_growth writes no dump without profile_file: add "
              "profile_file:PATH\n");
}

// The process of a line: the number in "cairn: 1234 (start_test): …"; 0 for any other line.
int process_of(const std::string &line)
{
    int process = 0;
    int end = 0;
    const int found = sscanf(line.c_str(), "cairn: %d (start_test): %n", &process, &end);
    return found == 1 && end > 0 ? process : 0;
}

std::vector<std::string> lines_of(const std::string &text)
{
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

TEST(Start, VerboseReportsTheSettingsAndTheEnd)
{
    const std::vector<std::string> lines = lines_of(errors_of("CAIRN_OPTIONS=verbose:1"));
    ASSERT_EQ(lines.size(), 4u);
    for (const std::string &line : lines) {
        EXPECT_NE(process_of(line), 0) << line;
        EXPECT_EQ(process_of(line), process_of(lines[0])) << line;
    }
    EXPECT_NE(lines[0].find("): options: decay_ms:1234,dirty_cap:5242880,"), std::string::npos);
    // The words of cairn/stats.h and of the tool.
    EXPECT_NE(lines[1].find("): allocated 0 bytes in 0 blocks, large 0 bytes in 0 blocks"),
              std::string::npos)
        << lines[1];
    for (const char *word : {"): active ", " dirty ", " mapped ", " retained ", " metadata "})
        EXPECT_NE(lines[2].find(word), std::string::npos) << lines[2];
    for (const char *word : {"): purged 0 bytes in 0 purges, ", "thread heaps "})
        EXPECT_NE(lines[3].find(word), std::string::npos) << lines[3];
}

// Helpers of the cases below, which have an effect only in a process that one of those has started.
bool is_started() { return getenv("CAIRN_TEST_STARTED") != nullptr; }

// Coreutils close stderr when they exit, to check whether everything was written.
TEST(Start, HelperThatClosesStderrAtExit)
{
    if (is_started())
        atexit([] { fclose(stderr); });
}

TEST(Start, VerboseReportsTheEndWhenStderrIsClosed)
{
    const std::vector<std::string> lines = lines_of(errors_of(
        "CAIRN_TEST_STARTED=1 CAIRN_OPTIONS=verbose:1", "Start.HelperThatClosesStderrAtExit"));
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_NE(lines[1].find("): allocated "), std::string::npos) << lines[1];
}

// A program may close every descriptor and open files of its own: Cairn writes nothing into them.
TEST(Start, HelperThatOpensAFileInEveryPlace)
{
    if (!is_started())
        return;
    const int limit = 1024;
    for (int file = 2; file < limit; file++)
        close(file);
    char name[] = "/tmp/cairn-start-test-XXXXXX";
    const int file = mkstemp(name); // in the place of stderr
    unlink(name);
    for (int copy = file + 1; copy < limit; copy++)
        (void)dup2(file, copy);
    close(STDERR_FILENO);
    if (fork() == 0)
        exit(0); // reports, if a descriptor is left
    wait(nullptr);
    struct stat info;
    if (fstat(limit - 1, &info) != 0 || info.st_size != 0)
        _exit(1);
}

TEST(Start, VerboseWritesIntoNoFileOfTheProgram)
{
    EXPECT_EQ(lines_of(errors_of("CAIRN_TEST_STARTED=1 CAIRN_OPTIONS=verbose:1",
                                 "Start.HelperThatOpensAFileInEveryPlace"))
                  .size(),
              1u);
}

// The pattern of env, nice, time or a shell: the child of the wrapper reports for itself.
TEST(Start, HelperThatForks)
{
    if (!is_started())
        return;
    if (fork() == 0)
        exit(0);
    wait(nullptr);
}

TEST(Start, VerboseLinesOfAForkedChildNameIt)
{
    const std::vector<std::string> lines = lines_of(
        errors_of("CAIRN_TEST_STARTED=1 CAIRN_OPTIONS=verbose:1", "Start.HelperThatForks"));
    ASSERT_EQ(lines.size(), 7u);
    const int parent = process_of(lines[0]);
    for (size_t i = 1; i < 4; i++)
        EXPECT_NE(process_of(lines[i]), parent) << "the child ends first: " << lines[i];
    for (size_t i = 4; i < 7; i++)
        EXPECT_EQ(process_of(lines[i]), parent) << lines[i];
}

} // namespace
