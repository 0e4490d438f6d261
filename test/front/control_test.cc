// cairn/control.h: keys, actions and errors as numbers; errno stays.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cairn/control.h>
#include <cairn/heap.h>
#include <cairn/profile.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

extern "C" {
#include "front/control.h"
}

namespace control_test
{

std::string get(const std::string &key)
{
    char text[CAIRN_VALUE_BYTES];
    const int error = cairn_get(key.c_str(), text, sizeof text);
    return error == 0 ? text : "error " + std::to_string(error);
}

uint64_t number(const std::string &key) { return strtoull(get(key).c_str(), nullptr, 10); }

TEST(Control, EveryKeyCanBeRead)
{
    errno = 77;
    size_t count = 0;
    size_t numbers = 0;
    for (; const char *key = cairn_key(count); count++) {
        EXPECT_EQ(get(key).rfind("error", 0), std::string::npos) << key;
        const bool is_number = strncmp(key, "stats.", 6) == 0;
        numbers += is_number;
        if (is_number) {
            EXPECT_EQ(cairn_set(key, "1"), EPERM) << key;
        }
    }
    EXPECT_GT(numbers, 30u);
    EXPECT_GT(count, numbers + 8);
    EXPECT_EQ(cairn_key(count + 100), nullptr);
    EXPECT_EQ(errno, 77);
}

TEST(Control, Errors)
{
    char text[3] = "ab";
    errno = 77;
    EXPECT_EQ(cairn_get("nothing", text, sizeof text), ENOENT);
    EXPECT_EQ(cairn_get("stats.", text, sizeof text), ENOENT);
    EXPECT_EQ(cairn_get("stats.nothing", text, sizeof text), ENOENT);
    EXPECT_EQ(cairn_get("decay_ms", text, sizeof text), ERANGE);
    EXPECT_EQ(cairn_get("decay_ms", text, 0), ERANGE);
    EXPECT_STREQ(text, "ab");
    EXPECT_EQ(cairn_set("nothing", "1"), ENOENT);
    EXPECT_EQ(cairn_set("guard", "1"), EPERM);
    EXPECT_EQ(cairn_set("decay_ms", "soon"), EINVAL);
    EXPECT_EQ(cairn_do("nothing", nullptr), ENOENT);
    EXPECT_EQ(cairn_do("purge", "everything"), EINVAL);
    EXPECT_EQ(errno, 77);
    for (const int error : {ENOENT, EINVAL, EPERM, E2BIG, ERANGE, EBUSY, ENOMEM, ENODATA}) {
        EXPECT_STRNE(control_error_name(error), "EIO") << error;
        EXPECT_GT(strlen(control_error_text(error)), 5u);
    }
    EXPECT_STREQ(control_error_name(ELOOP), "EIO");
}

// Memory that a thread keeps is released without its help: it sleeps at that time.
TEST(Control, PurgeGivesBackWhatASleepingThreadKeeps)
{
    constexpr size_t kBlocks = 3000;
    constexpr size_t kBytes = 4096;
    int ready[2];
    int done[2];
    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(pipe(done), 0);
    ASSERT_EQ(cairn_set("decay_ms", "1000000"), 0);
    std::thread thread([&] {
        static void *blocks[kBlocks];
        for (void *&block : blocks)
            memset(block = cairn_malloc(kBytes), 1, kBytes);
        for (void *block : blocks)
            cairn_free(block);
        char byte = 0;
        (void)!write(ready[1], &byte, 1);
        (void)!read(done[0], &byte, 1);
    });
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    const uint64_t before = number("stats.counted_bytes");
    EXPECT_GE(before, kBlocks * kBytes / 2);
    EXPECT_EQ(cairn_do("purge", nullptr), 0);
    EXPECT_LE(number("stats.counted_bytes"), before - kBlocks * kBytes / 2);
    EXPECT_EQ(get("stats.dirty_bytes"), "0");
    ASSERT_EQ(write(done[1], &byte, 1), 1);
    thread.join();
    for (const int end : {ready[0], ready[1], done[0], done[1]})
        close(end);
}

TEST(Control, TheHardLimitByName)
{
    const uint64_t most = number("stats.counted_bytes") + (1 << 20);
    ASSERT_EQ(cairn_set("hard_limit", std::to_string(most).c_str()), 0);
    errno = 0;
    void *volatile block = cairn_malloc(16 << 20);
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_GT(number("stats.refusals"), 0u);
    ASSERT_EQ(cairn_set("hard_limit", "0"), 0);
    block = cairn_malloc(16 << 20);
    EXPECT_NE(block, nullptr);
    cairn_free(block);
}

TEST(Control, TheProfilersActions)
{
    EXPECT_EQ(cairn_do("profile.dump", nullptr), EINVAL) << "profile_file is not set";
    EXPECT_EQ(cairn_do("profile.dump", "/tmp/never"), ENODATA);
    EXPECT_EQ(cairn_do("profile.start", "often"), EINVAL);
    EXPECT_EQ(cairn_do("profile.start", "off"), EINVAL);
    EXPECT_EQ(cairn_do("profile.start", "1K"), 0);
    EXPECT_EQ(get("profile"), "1024");
    EXPECT_EQ(cairn_do("profile.reset", nullptr), 0);
    const std::string path = testing::TempDir() + "control." + std::to_string(getpid());
    EXPECT_EQ(cairn_do("profile.dump", path.c_str()), 0);
    EXPECT_EQ(unlink(path.c_str()), 0);
    ASSERT_EQ(cairn_set("profile_file", path.c_str()), 0);
    EXPECT_EQ(cairn_do("profile.dump", nullptr), 0);
    EXPECT_EQ(unlink((path + "." + std::to_string(getpid()) + ".0").c_str()), 0);
    EXPECT_EQ(cairn_do("profile.stop", nullptr), 0);
    EXPECT_EQ(get("profile"), "0");
    EXPECT_EQ(cairn_do("profile.start", nullptr), 0);
    EXPECT_EQ(get("profile"), std::to_string(CAIRN_PROFILE_INTERVAL));
    EXPECT_EQ(cairn_do("profile.stop", nullptr), 0);
}

} // namespace control_test
