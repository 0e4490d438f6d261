// The tables of the profiler and its dumps. Each case needs a process of its own (ctest runs each
// alone), since the profiler is the process's.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <memory>
#include <thread>

#include "watch/profile_kit.h"

extern "C" {
#include "os/file.h"
#include "os/module.h"
#include "os/process.h"
#include "watch/profile_writer.h"
}

namespace profile_dump_test
{

// The tables of the profiler: sums by stack, samples in use, weights, and full tables.

// Tables are in metadata memory, which is never released, so all cases share one.
struct profile_table *table()
{
    static struct profile_table *made = profile_table_make();
    return made;
}

class ProfileTable : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_start();
        ASSERT_NE(table(), nullptr);
        profile_table_reset(table());
    }
    void TearDown() override { profile_table_reset(table()); }

    static bool add(uintptr_t block, size_t size, std::vector<uintptr_t> frames,
                    uint64_t interval = 1)
    {
        const struct profile_block taken = {block, 0, 7, size, profile_weight(size, interval),
                                            0,     99};
        return profile_table_add(table(), &taken, size, frames.data(),
                                 static_cast<unsigned>(frames.size()));
    }
    static bool remove(uintptr_t block)
    {
        return profile_table_remove(table(), reinterpret_cast<void *>(block));
    }
    static const struct profile_site *site_of(const std::vector<uintptr_t> &frames)
    {
        const struct profile_site *found = nullptr;
        for (const struct profile_site &site : table()->sites)
            if (site.ready == frames.size() + 1 &&
                std::equal(frames.begin(), frames.end(), &table()->frames[site.first_frame])) {
                EXPECT_EQ(found, nullptr) << "one stack has two sites";
                found = &site;
            }
        return found;
    }
};

TEST_F(ProfileTable, CostsAtMost2MiB)
{
    EXPECT_LE(sizeof(struct profile_table), size_t{2} << 20);
    EXPECT_GT(sizeof(struct profile_table), size_t{1} << 20);
}

TEST_F(ProfileTable, WeightsAreOneThroughTheChance)
{
    for (const double interval : {1.0, 4096.0, 524288.0, 1e9})
        for (double size = 8; size < 1e8; size *= 1.7) {
            const auto bytes = static_cast<uint64_t>(size);
            const double weight =
                1 / -expm1(-static_cast<double>(bytes) / interval) * (1 << PROFILE_WEIGHT_SHIFT);
            const auto got =
                static_cast<double>(profile_weight(bytes, static_cast<uint64_t>(interval)));
            EXPECT_NEAR(got / weight, 1, 1e-5) << bytes << " at " << interval;
        }
}

TEST_F(ProfileTable, SumsByStack)
{
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    EXPECT_TRUE(add(0x2000, 200, {1, 2, 3}));
    EXPECT_TRUE(add(0x3000, 50, {1, 2, 4}));
    const struct profile_site *site = site_of({1, 2, 3});
    ASSERT_NE(site, nullptr);
    EXPECT_EQ(site->allocated.samples, 2u);
    EXPECT_EQ(site->allocated.bytes, 300u);
    EXPECT_EQ(site->live.objects, uint64_t{2} << PROFILE_WEIGHT_SHIFT);
    EXPECT_EQ(site_of({1, 2, 4})->live.bytes, 50u);
    EXPECT_EQ(table()->live.bytes, 350u);
    EXPECT_TRUE(remove(0x1000));
    EXPECT_FALSE(remove(0x1000)) << "once";
    EXPECT_FALSE(remove(0x4000));
    EXPECT_EQ(site->allocated.bytes, 300u);
    EXPECT_EQ(site->live.bytes, 200u);
    EXPECT_EQ(site->live.samples, 1u);
    EXPECT_EQ(table()->live.bytes, 250u);
}

TEST_F(ProfileTable, ABlockOfASmallChanceCountsForMany)
{
    EXPECT_TRUE(add(0x1000, 1024, {5}, 512 << 10));
    const struct profile_site *site = site_of({5});
    EXPECT_NEAR(static_cast<double>(site->live.objects) / (1 << PROFILE_WEIGHT_SHIFT), 512.5, 0.01);
    EXPECT_NEAR(static_cast<double>(site->live.bytes), 512.5 * 1024, 20);
    EXPECT_TRUE(remove(0x1000));
    EXPECT_EQ(site->live.objects, 0u);
    EXPECT_EQ(site->live.bytes, 0u);
}

TEST_F(ProfileTable, WithoutAStackItGoesToTheFirstSite)
{
    EXPECT_TRUE(add(0x1000, 100, {}));
    EXPECT_EQ(table()->sites[0].live.bytes, 100u);
    EXPECT_EQ(table()->stacks_lost, 0u);
    EXPECT_TRUE(remove(0x1000));
}

TEST_F(ProfileTable, TooManySamplesAreCounted)
{
    uint64_t kept = 0, blocks = 2 * PROFILE_BLOCKS;
    for (uint64_t i = 1; i <= blocks; i++)
        kept += add(i * 4112, 16, {9});
    EXPECT_LE(kept, uint64_t{PROFILE_BLOCKS});
    EXPECT_GT(kept, uint64_t{PROFILE_BLOCKS} * 9 / 10) << "the table has free entries";
    EXPECT_EQ(table()->blocks_lost, blocks - kept);
    const struct profile_site *site = site_of({9});
    EXPECT_EQ(site->allocated.samples, blocks);
    EXPECT_EQ(site->live.samples, kept);
    uint64_t removed = 0;
    for (uint64_t i = 1; i <= blocks; i++)
        removed += remove(i * 4112);
    EXPECT_EQ(removed, kept);
    EXPECT_EQ(site->live.bytes, 0u);
}

TEST_F(ProfileTable, ResetForgetsSamplesAndSums)
{
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    profile_table_reset(table());
    EXPECT_FALSE(remove(0x1000));
    EXPECT_EQ(site_of({1, 2, 3})->allocated.samples, 0u);
    EXPECT_EQ(table()->live.bytes, 0u);
    EXPECT_EQ(table()->allocated.bytes, 0u);
    EXPECT_TRUE(add(0x1000, 100, {1, 2, 3}));
    EXPECT_EQ(site_of({1, 2, 3})->live.bytes, 100u);
}

TEST_F(ProfileTable, ThreadsTogether)
{
    std::vector<std::thread> threads;
    for (uintptr_t number = 0; number < 4; number++)
        threads.emplace_back([number] {
            for (uintptr_t round = 0; round < 200; round++)
                for (uintptr_t i = 1; i <= 30; i++) {
                    EXPECT_TRUE(add(i << 20 | number << 12, 64, {i, 77, 78}));
                    if (i > 5) {
                        EXPECT_TRUE(remove((i - 5) << 20 | number << 12));
                    }
                    for (uintptr_t left = 26; i == 30 && left <= 30; left++) {
                        EXPECT_TRUE(remove(left << 20 | number << 12));
                    }
                }
        });
    for (std::thread &thread : threads)
        thread.join();
    uint64_t samples = 0;
    for (const struct profile_site &site : table()->sites)
        samples += site.allocated.samples;
    EXPECT_EQ(samples, 4u * 200 * 30);
    EXPECT_EQ(table()->live.samples, 0u);
    EXPECT_EQ(table()->live.bytes, 0u);
}

// The last case, since stacks are kept for ever.
TEST_F(ProfileTable, ZTooManyStacksCountAsOne)
{
    for (uintptr_t i = 1; i <= 2 * PROFILE_SITES; i++) {
        EXPECT_TRUE(add(0x100000, 16, {i, 1000, 2000}));
        EXPECT_TRUE(remove(0x100000));
    }
    EXPECT_GT(table()->stacks_lost, uint64_t{PROFILE_SITES} / 2);
    EXPECT_EQ(table()->sites[0].allocated.samples, table()->stacks_lost);
    EXPECT_EQ(table()->allocated.samples, uint64_t{2} * PROFILE_SITES);
    std::vector<uintptr_t> deep(PROFILE_DEPTH);
    for (uintptr_t i = 1; i <= 2 * PROFILE_FRAMES / PROFILE_DEPTH; i++) {
        deep[0] = i;
        EXPECT_TRUE(add(0x100000, 16, deep));
        EXPECT_TRUE(remove(0x100000));
    }
    EXPECT_LE(table()->frames_taken, uint64_t{PROFILE_FRAMES});
}

// Buffered text: complete, in order, across the end of the buffer; the first error is kept.

using profile_kit::File;

TEST(ProfileWriter, WritesWhatItWasGiven)
{
    const File file("profile_writer");
    struct profile_writer writer = {};
    writer.file = os_file_open(file.path(), OS_FILE_CREATE);
    ASSERT_GE(writer.file, 0);
    std::string expected;
    for (unsigned i = 0; i < 2000; i++) {
        profile_write(&writer, "line %u of %s\n", i, "many");
        expected += "line " + std::to_string(i) + " of many\n";
    }
    const std::string longer(3 * PROFILE_BUFFER_BYTES + 17, 'x');
    profile_write_text(&writer, longer.data(), longer.size());
    EXPECT_EQ(profile_write_out(&writer), 0);
    os_file_close(writer.file);
    std::ifstream stream(file.path());
    std::stringstream text;
    text << stream.rdbuf();
    EXPECT_EQ(text.str(), expected + longer);
}

TEST(ProfileWriter, TheFirstErrorStays)
{
    struct profile_writer writer = {};
    writer.file = open("/dev/full", O_WRONLY);
    ASSERT_GE(writer.file, 0);
    for (int i = 0; i < 1000; i++)
        profile_write(&writer, "some text\n");
    EXPECT_EQ(profile_write_out(&writer), -ENOSPC);
    os_file_close(writer.file);
}

// Executable mappings with their build ids, compared with the notes of the files.

using profile_kit::File;
using profile_kit::words;

std::string g_own_id; // build id of this program, from its notes in memory

int find_own(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &head = info->dlpi_phdr[i];
        if (head.p_type != PT_NOTE)
            continue;
        const auto *at = reinterpret_cast<const unsigned char *>(info->dlpi_addr + head.p_vaddr);
        const auto *end = at + head.p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            at += sizeof note + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && g_own_id.empty())
                for (unsigned byte = 0; byte < note.n_descsz; byte++) {
                    char hex[3];
                    snprintf(hex, sizeof hex, "%02x", at[byte]);
                    g_own_id += hex;
                }
            at += (note.n_descsz + 3) / 4 * 4;
        }
    }
    return 1; // the first object is the program
}

TEST(ProfileMaps, HaveThisProgramAndItsBuildId)
{
    const File file("profile_maps");
    struct profile_writer writer = {};
    writer.file = os_file_open(file.path(), OS_FILE_CREATE);
    ASSERT_GE(writer.file, 0);
    static struct profile_maps scratch;
    profile_write_maps(&writer, &scratch);
    EXPECT_EQ(profile_write_out(&writer), 0);
    os_file_close(writer.file);

    dl_iterate_phdr(find_own, nullptr);
    const auto here = reinterpret_cast<uintptr_t>(&find_own);
    bool found = false;
    for (const std::string &line : file.lines("map")) {
        const std::vector<std::string> parts = words(line);
        ASSERT_GE(parts.size(), 5u) << line;
        if (here < std::stoull(parts[0], nullptr, 16) || here >= std::stoull(parts[1], nullptr, 16))
            continue;
        found = true;
        EXPECT_NE(parts[4].find(program_invocation_short_name), std::string::npos) << line;
        EXPECT_EQ(parts[3], g_own_id.empty() ? "-" : g_own_id);
    }
    EXPECT_TRUE(found);
}

// The libraries in the stacks of samples: noted once, written with their build ids, and never more
// than there is room for.

using profile_kit::File;
using profile_kit::words;

std::vector<std::string> written(const struct profile_modules &modules)
{
    const File file("profile_modules");
    static struct profile_writer writer;
    writer = {};
    writer.file = open(file.path(), O_CREAT | O_RDWR | O_TRUNC, 0600);
    profile_write_modules(&writer, &modules);
    EXPECT_EQ(profile_write_out(&writer), 0);
    (void)close(writer.file);
    return file.lines("module");
}

class ProfileModules : public testing::Test
{
  protected:
    std::unique_ptr<struct profile_modules> modules = std::make_unique<struct profile_modules>();
    uintptr_t in_libc = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "getpid")) + 1;
    uintptr_t in_program = reinterpret_cast<uintptr_t>(&written) + 1;

    void SetUp() override
    {
        struct os_module module;
        if (!os_module_of(in_libc, &module))
            GTEST_SKIP() << "this libc does not provide the module of an address";
        if (module.is_program)
            GTEST_SKIP() << "a static program has no libraries";
    }
};

TEST_F(ProfileModules, ALibraryIsNotedOnceAndTheProgramNever)
{
    const uintptr_t frames[] = {in_libc, in_program, in_libc, 16};
    profile_modules_see(modules.get(), frames, 4);
    profile_modules_see(modules.get(), frames, 4);
    const std::vector<std::string> lines = written(*modules);
    ASSERT_EQ(lines.size(), 1u);
    const std::vector<std::string> line = words(lines[0]);
    ASSERT_EQ(line.size(), 5u);
    EXPECT_LE(std::stoull(line[0], nullptr, 16), in_libc);
    EXPECT_GT(std::stoull(line[1], nullptr, 16), in_libc);
    struct os_module module;
    ASSERT_TRUE(os_module_of(in_libc, &module));
    EXPECT_EQ(std::stoull(line[2], nullptr, 16), module.base);
    EXPECT_EQ(line[4], module.path);
    const unsigned char *id;
    EXPECT_EQ(line[3].size(), std::max<size_t>(1, 2 * os_module_build_id(&module, &id)));
}

TEST_F(ProfileModules, WhatFindsNoRoomIsLeftOut)
{
    modules->module_count = PROFILE_MODULES;
    profile_modules_see(modules.get(), &in_libc, 1);
    EXPECT_TRUE(written(*modules).empty());
    modules->module_count = 0;
    modules->text_bytes = PROFILE_MODULE_TEXT - 4;
    profile_modules_see(modules.get(), &in_libc, 1);
    EXPECT_TRUE(written(*modules).empty());
}

// Dumps: their content, their files, and their number. Each case needs a process of its own (ctest
// runs each alone), since the profiler is the process's.

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
        EXPECT_EQ(parts[2], small ? "100" : "100000") << "the requested size";
        EXPECT_EQ(parts[3], "65536") << "each block counts as one";
        EXPECT_EQ(parts[5], std::to_string(os_thread_id()));
    }
    for (void *block : blocks)
        free_fast(block);
}

// A dump has addresses and stacks of its program.
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

// The name of a dump of a process.
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

TEST(ProfileDump, TheOneAtTheEndWaitsForAnother)
{
    const File file("profile_dump");
    start_afresh(1);
    profile_dump_to(file.path(), strlen(file.path()), 0);
    ASSERT_TRUE(os_claim(&profile_state.busy, 0));
    std::thread other([] {
        os_sleep_ms(50);
        os_unclaim(&profile_state.busy);
    });
    const uint64_t start_us = os_now_us();
    const int error = profile_dump_next("end");
    const uint64_t waited_us = os_now_us() - start_us;
    other.join();
    EXPECT_TRUE(error == 0 || (error == -EBUSY && waited_us >= 1000000)) << error;
    (void)unlink(numbered(file, getpid(), 0).c_str());
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

TEST(ProfileDump, AThousandCallsAreServed)
{
    const File file("profile_dump");
    start_afresh(1);
    profile_dump_to(file.path(), strlen(file.path()), 1);
    for (int number = 0; number < 1005; number++) {
        ASSERT_EQ(profile_dump_next("call"), 0) << number;
        ASSERT_EQ(unlink(numbered(file, getpid(), number).c_str()), 0);
    }
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
    EXPECT_EQ(profile_dump_next("growth"), -ENOENT);
    EXPECT_EQ(profile_dump_next("call"), -ENOENT);
    EXPECT_EQ(profile_dump_next("end"), -ENOENT);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "cairn: cannot write profile /nowhere/at/all." + std::to_string(getpid()) +
                  ".0: ENOENT\n");
}

} // namespace profile_dump_test
