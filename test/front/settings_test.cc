// Settings: each can be read; those that can be changed are changed and have their effect; a
// refused value changes nothing.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "front/settings.h"
#include "watch/watch.h"
}

namespace settings_test
{

using heap_layer::limits;

std::string get(const char *name)
{
    char text[PROFILE_FILE_MAX];
    const int error = settings_get(name, text, sizeof text);
    return error == 0 ? text : "error " + std::to_string(error);
}

TEST(Settings, EachHasANameAndAValue)
{
    bool writable = false;
    size_t count = 0;
    size_t changeable = 0;
    while (const char *name = settings_name(count, &writable)) {
        EXPECT_EQ(get(name).rfind("error", 0), std::string::npos) << name;
        EXPECT_EQ(settings_set(name, "~"), writable ? EINVAL : EPERM) << name;
        count++;
        changeable += writable;
    }
    EXPECT_EQ(settings_name(count + 7, &writable), nullptr);
    EXPECT_GE(count, 11u);
    EXPECT_GE(changeable, 8u);
}

TEST(Settings, TheLimitsOfThePages)
{
    EXPECT_EQ(settings_set("decay_ms", "250"), 0);
    EXPECT_EQ(settings_set("dirty_cap", "3M"), 0);
    EXPECT_EQ(settings_set("soft_limit", "5G"), 0);
    EXPECT_EQ(settings_set("hard_limit", "6G"), 0);
    EXPECT_EQ(limits().decay_ms, 250u);
    EXPECT_EQ(limits().dirty_cap_bytes, size_t{3} << 20);
    EXPECT_EQ(limits().soft_limit_bytes, size_t{5} << 30);
    EXPECT_EQ(limits().hard_limit_bytes, size_t{6} << 30);
    EXPECT_EQ(get("decay_ms"), "250");
    EXPECT_EQ(get("dirty_cap"), "3145728");
    EXPECT_EQ(get("hard_limit"), "6442450944");
    EXPECT_EQ(settings_set("hard_limit", "much"), EINVAL);
    EXPECT_EQ(settings_set("hard_limit", ""), EINVAL);
    EXPECT_EQ(get("hard_limit"), "6442450944") << "a refused value changes nothing";
    EXPECT_EQ(settings_set("hard_limit", "0"), 0);
    EXPECT_EQ(settings_set("soft_limit", "0"), 0);
    EXPECT_EQ(limits().hard_limit_bytes, 0u);
}

TEST(Settings, ALimitMayFollowTheGroup)
{
    EXPECT_EQ(settings_set("soft_limit", "cgroup"), 0);
    EXPECT_EQ(get("soft_limit"), "cgroup");
    const size_t followed = limits().soft_limit_bytes;
    EXPECT_EQ(settings_set("decay_ms", "300"), 0);
    EXPECT_EQ(limits().soft_limit_bytes, followed)
        << "the change of another setting keeps the followed limit";
    EXPECT_EQ(settings_set("soft_limit", "0"), 0);
    EXPECT_EQ(get("soft_limit"), "0");
    EXPECT_EQ(limits().soft_limit_bytes, 0u);
}

TEST(Settings, TheProfiler)
{
    EXPECT_EQ(get("profile"), "0");
    EXPECT_EQ(settings_set("profile", "64K"), 0);
    EXPECT_EQ(get("profile"), "65536");
    EXPECT_EQ(settings_set("profile", "off"), 0);
    EXPECT_EQ(get("profile"), "0");
    char path[] = "/tmp/settings.heap";
    EXPECT_EQ(settings_set("profile_file", path), 0);
    path[5] = 'X'; // a copy was made
    EXPECT_EQ(get("profile_file"), "/tmp/settings.heap");
    EXPECT_TRUE(profile_dumps());
    EXPECT_EQ(settings_set("profile_file", "/a"), 0);
    EXPECT_EQ(get("profile_file"), "/a");
    EXPECT_EQ(settings_set("profile_file", "relative"), EINVAL);
    EXPECT_EQ(settings_set("profile_growth", "1M"), 0);
    EXPECT_EQ(get("profile_growth"), "1048576");
    EXPECT_EQ(get("profile_file"), "/a") << "the change of another setting keeps the file";
    EXPECT_EQ(settings_set("profile_growth", "0"), 0);
}

TEST(Settings, WhatDoesNotFitIsRefused)
{
    char text[4] = "abc";
    ASSERT_EQ(settings_set("decay_ms", "1000"), 0);
    EXPECT_EQ(settings_get("decay_ms", text, sizeof text), ERANGE);
    EXPECT_STREQ(text, "abc");
    ASSERT_EQ(settings_set("decay_ms", "999"), 0);
    EXPECT_EQ(settings_get("decay_ms", text, sizeof text), 0);
    EXPECT_STREQ(text, "999");
    EXPECT_EQ(settings_get("decay", text, sizeof text), ENOENT);
    EXPECT_EQ(settings_set("", "1"), ENOENT);
}

TEST(Settings, ManyThreadsAtOnce)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([i] {
            for (int round = 0; round < 25; round++) {
                const std::string value = std::to_string(1000 + i);
                EXPECT_EQ(settings_set("decay_ms", value.c_str()), 0);
                const std::string seen = get("decay_ms");
                EXPECT_EQ(seen.size(), 4u) << seen;
                EXPECT_EQ(seen.substr(0, 3), "100") << seen;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Settings, AChildOfForkHasThemToo)
{
    ASSERT_EQ(settings_set("decay_ms", "777"), 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(get("decay_ms") == "777" && settings_set("decay_ms", "778") == 0 &&
                      get("decay_ms") == "778"
                  ? 0
                  : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(get("decay_ms"), "777");
}

} // namespace settings_test
