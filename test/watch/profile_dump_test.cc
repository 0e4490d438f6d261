// Dumps: what they say, where they go, and that there are not too many. One process a case (ctest
// runs each alone): the profiler is the process's.

#include "watch/profile_kit.h"

#include <sys/stat.h>
#include <sys/wait.h>

namespace
{

using namespace profile_kit;

TEST(ProfileDump, NothingBeforeTheFirstStart)
{
    const File file("profile_dump");
    EXPECT_EQ(profile_dump(file.path(), "call"), -ENODATA);
    EXPECT_FALSE(profile_dumps());
    profile_dump_next("end");
}

TEST(ProfileDump, HasTheSumsTheBlocksAndTheirStacks)
{
    const File file("profile_dump");
    start_afresh(1);
    void *blocks[] = {allocate(100), allocate(100000)};
    free_fast(allocate(50));
    profile_stop();
    ASSERT_EQ(profile_dump(file.path(), "call"), 0);

    const std::vector<std::string> lines = file.lines();
    ASSERT_GT(lines.size(), 8u);
    EXPECT_EQ(lines.front(), "cairn-profile 1");
    EXPECT_EQ(lines.back(), "end");
    EXPECT_EQ(file.lines("interval"), std::vector<std::string>{"1"});
    EXPECT_EQ(file.lines("reason"), std::vector<std::string>{"call"});
    EXPECT_EQ(words(file.lines("process")[0])[0], std::to_string(getpid()));
    EXPECT_EQ(file.lines("lost"), std::vector<std::string>{"0 0"});

    uint64_t allocated = 0, live = 0;
    for (const std::string &line : file.lines("site")) {
        const std::vector<std::string> parts = words(line);
        ASSERT_GE(parts.size(), 7u);
        allocated += std::stoull(parts[1]);
        live += std::stoull(parts[4]);
        for (size_t i = 7; i < parts.size(); i++)
            EXPECT_EQ(parts[i].compare(0, 2, "0x"), 0) << line;
    }
    EXPECT_EQ(allocated, 3u);
    EXPECT_EQ(live, 2u);

    const std::vector<std::string> rows = file.lines("block");
    ASSERT_EQ(rows.size(), 2u);
    for (const std::string &row : rows) {
        const std::vector<std::string> parts = words(row);
        ASSERT_EQ(parts.size(), 7u);
        const auto address = std::stoull(parts[0], nullptr, 16);
        const bool small = address == reinterpret_cast<uintptr_t>(blocks[0]);
        EXPECT_TRUE(small || address == reinterpret_cast<uintptr_t>(blocks[1]));
        EXPECT_EQ(parts[2], small ? "100" : "100000") << "as asked for";
        EXPECT_EQ(parts[3], "65536") << "each counts as one";
        EXPECT_EQ(parts[5], std::to_string(os_thread_id()));
    }
    for (void *block : blocks)
        free_fast(block);
}

// It has addresses and stacks of its program.
TEST(ProfileDump, IsForNobodyButItsUser)
{
    const File file("profile_dump");
    start_afresh(1);
    (void)unlink(file.path());
    const mode_t before = umask(0);
    EXPECT_EQ(profile_dump(file.path(), "call"), 0);
    (void)umask(before);
    struct stat found = {};
    ASSERT_EQ(stat(file.path(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
}

TEST(ProfileDump, ReplacesALongerOne)
{
    const File file("profile_dump");
    start_afresh(1);
    std::ofstream(file.path()) << std::string(1 << 20, 'x');
    ASSERT_EQ(profile_dump(file.path(), "call"), 0);
    EXPECT_EQ(file.lines().back(), "end");
    EXPECT_EQ(profile_dump("/nowhere/at/all", "call"), -ENOENT);
    EXPECT_EQ(profile_dump("/dev/full", "call"), -EINVAL) << "a device has no length";
}

// The names of a process's files.
std::string numbered(const File &file, pid_t process, int number)
{
    return std::string(file.path()) + "." + std::to_string(process) + "." + std::to_string(number);
}

TEST(ProfileDump, OnGrowthAndAtTheEndButNeverOverAFile)
{
    const File file("profile_dump");
    start_afresh(1);
    std::ofstream(numbered(file, getpid(), 1)) << "mine";
    profile_dump_to(file.path(), strlen(file.path()), 100000);
    std::vector<void *> blocks;
    for (int i = 0; i < 35; i++)
        blocks.push_back(allocate(10000));
    profile_dump_next("end");
    std::vector<std::string> reasons;
    for (int number = 0; number < 20; number++) {
        const std::string path = numbered(file, getpid(), number);
        std::ifstream text(path);
        for (std::string line; std::getline(text, line);)
            if (line.compare(0, 7, "reason ") == 0 || line == "mine")
                reasons.push_back(line);
        (void)unlink(path.c_str());
    }
    EXPECT_EQ(reasons, (std::vector<std::string>{"reason growth", "mine", "reason growth",
                                                 "reason growth", "reason end"}))
        << "at 100,000, 200,000 and 300,000 bytes, then at the end";
    for (void *block : blocks)
        free_fast(block);
}

TEST(ProfileDump, NotMoreThanAFew)
{
    const File file("profile_dump");
    start_afresh(1);
    profile_dump_to(file.path(), strlen(file.path()), 1);
    for (int i = 0; i < 100; i++)
        profile_dump_next("growth");
    profile_dump_next("end");
    int files = 0;
    for (int number = 0; number < 200; number++)
        files += unlink(numbered(file, getpid(), number).c_str()) == 0;
    EXPECT_EQ(files, 17) << "16 and the one at the end";
}

TEST(ProfileDump, NearALimitOnce)
{
    const File file("profile_dump");
    start_afresh(1);
    ASSERT_EQ(profile_dump_to(file.path(), strlen(file.path()), 0), 0);
    struct page_stats stats;
    pages_read_stats(&stats);
    const size_t limit = stats.counted_bytes + (64 << 20);
    pages_limit_hard(limit);
    std::vector<void *> blocks;
    size_t used_at_dump = 0;
    for (int i = 0; i < 63; i++) {
        blocks.push_back(allocate(1 << 20));
        if (used_at_dump == 0 && access(numbered(file, getpid(), 0).c_str(), F_OK) == 0) {
            pages_read_stats(&stats);
            used_at_dump = stats.counted_bytes;
        }
    }
    EXPECT_GE(used_at_dump, limit - limit / 8);
    EXPECT_LE(used_at_dump, limit);
    std::ifstream dump(numbered(file, getpid(), 0));
    std::stringstream content;
    content << dump.rdbuf();
    EXPECT_NE(content.str().find("\nreason limit\n"), std::string::npos);
    EXPECT_EQ(unlink(numbered(file, getpid(), 0).c_str()), 0);
    EXPECT_NE(access(numbered(file, getpid(), 1).c_str(), F_OK), 0) << "once";
    for (void *block : blocks)
        if (block)
            free_fast(block);
    pages_limit_hard(0);
}

TEST(ProfileDump, AForksChildHasFilesOfItsOwn)
{
    const File file("profile_dump");
    start_afresh(1);
    profile_dump_to(file.path(), strlen(file.path()), 0);
    profile_dump_next("growth");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        profile_dump_next("end");
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(unlink(numbered(file, getpid(), 0).c_str()), 0);
    EXPECT_EQ(unlink(numbered(file, child, 0).c_str()), 0);
}

TEST(ProfileDump, AFailureIsSaidOnce)
{
    const File file("profile_dump");
    start_afresh(1);
    profile_dump_to("/nowhere/at/all", 15, 0);
    testing::internal::CaptureStderr();
    profile_dump_next("growth");
    profile_dump_next("end");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "cairn: no profile in /nowhere/at/all." + std::to_string(getpid()) + ".0: error 2\n");
}

} // namespace
