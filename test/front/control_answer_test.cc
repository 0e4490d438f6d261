// Requests and their answers: the form of each, errors, and any other content of a line.

#include <gtest/gtest.h>

#include <cairn/control.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace control_answer_test
{

std::string ask(const std::string &request, size_t capacity = CAIRN_ANSWER_BYTES)
{
    std::vector<char> answer(capacity + 1, '?');
    const size_t length = cairn_control(request.c_str(), answer.data(), capacity);
    EXPECT_EQ(answer[length], '\0');
    EXPECT_EQ(answer[capacity], '?') << "written beyond the end of the buffer";
    return {answer.data(), length};
}

// Reads one JSON value, as far as answers use JSON: without floats.
// Returns: false for anything else.
class Reader
{
  public:
    explicit Reader(const std::string &text) : at_(text.c_str()), end_(at_ + text.size()) {}

    bool whole() { return value() && at_ == end_; }

  private:
    bool take(char wanted) { return at_ < end_ && *at_ == wanted ? (at_++, true) : false; }

    bool word(const std::string &wanted)
    {
        if (std::string(at_, end_).rfind(wanted, 0) != 0)
            return false;
        at_ += wanted.size();
        return true;
    }

    bool string()
    {
        if (!take('"'))
            return false;
        for (; at_ < end_ && *at_ != '"'; at_++) {
            if (*at_ < ' ' || *at_ > '~')
                return false;
            if (*at_ == '\\')
                at_++;
        }
        return take('"');
    }

    bool list(char open, char close, bool named)
    {
        if (!take(open))
            return false;
        if (take(close))
            return true;
        do {
            if (named && !(string() && take(':')))
                return false;
            if (!value())
                return false;
        } while (take(','));
        return take(close);
    }

    bool value()
    {
        if (at_ < end_ && *at_ >= '0' && *at_ <= '9') {
            while (at_ < end_ && *at_ >= '0' && *at_ <= '9')
                at_++;
            return true;
        }
        return word("true") || word("false") || (at_ < end_ && *at_ == '"' && string()) ||
               (at_ < end_ && *at_ == '{' ? list('{', '}', true) : list('[', ']', false));
    }

    const char *at_;
    const char *end_;
};

bool is_json(const std::string &text) { return Reader(text).whole(); }

TEST(ControlAnswer, GetAndSet)
{
    EXPECT_EQ(ask("set decay_ms 250"), R"({"ok":true,"key":"decay_ms","value":"250"})");
    EXPECT_EQ(ask("get decay_ms"), R"({"ok":true,"key":"decay_ms","value":"250"})");
    EXPECT_EQ(ask("set hard_limit 1G"), R"({"ok":true,"key":"hard_limit","value":"1073741824"})");
    EXPECT_EQ(ask("set hard_limit 0"), R"({"ok":true,"key":"hard_limit","value":"0"})");
    EXPECT_NE(ask("get stats.counted_bytes").find(R"("value":")"), std::string::npos);
}

TEST(ControlAnswer, Errors)
{
    const auto error = [](const std::string &request) {
        const std::string answer = ask(request);
        EXPECT_TRUE(is_json(answer)) << answer;
        const std::string start = R"({"ok":false,"error":")";
        EXPECT_EQ(answer.rfind(start, 0), 0u) << answer;
        return answer.substr(start.size(), answer.find('"', start.size()) - start.size());
    };
    for (const char *request : {"", " ", "nothing", "get nothing", "set nothing 1", "do nothing",
                                "GET decay_ms", "get decay_ms ", "get  decay_ms"})
        EXPECT_EQ(error(request), "ENOENT") << request;
    for (const char *request : {"get", "set", "set decay_ms", "set decay_ms ", "do", "stats now",
                                "set decay_ms x", "purge all", "profile.start x"})
        EXPECT_EQ(error(request), "EINVAL") << request;
    EXPECT_EQ(error("set stats.purges 1"), "EPERM");
    EXPECT_EQ(error("set on_error report"), "EPERM");
    EXPECT_EQ(error("profile.dump /tmp/never"), "ENODATA");
    EXPECT_EQ(error("get " + std::string(100, 'k')), "ENOENT");
    EXPECT_EQ(error(std::string(513, 'k')), "E2BIG");
    EXPECT_EQ(error(std::string(512, 'k')), "ENOENT");
}

TEST(ControlAnswer, ActionsWithAndWithoutDo)
{
    for (const char *request : {"purge", "do purge", "thread.purge"}) {
        const std::string answer = ask(request);
        EXPECT_TRUE(is_json(answer)) << answer;
        EXPECT_NE(answer.find(R"("ok":true,"action":")"), std::string::npos) << answer;
        EXPECT_NE(answer.find(R"("after_bytes":)"), std::string::npos) << answer;
    }
    EXPECT_EQ(ask("profile.start 1M"), R"({"ok":true,"action":"profile.start"})");
    EXPECT_EQ(ask("get profile"), R"({"ok":true,"key":"profile","value":"1048576"})");
    EXPECT_EQ(ask("do profile.stop"), R"({"ok":true,"action":"profile.stop"})");
}

TEST(ControlAnswer, AllOfIt)
{
    const std::string stats = ask("stats");
    EXPECT_TRUE(is_json(stats)) << stats;
    for (const char *member : {R"("version":)", R"("pid":)", R"("program":)", R"("stats":{)",
                               R"("steering":{)", R"("allocated_bytes":)", R"("pinned_bytes":)",
                               R"("classes":[)", R"("threads":[)", R"("threads_left_out":0)"})
        EXPECT_NE(stats.find(member), std::string::npos) << member << " in " << stats;
    for (const char *request : {"keys", "version"}) {
        const std::string answer = ask(request);
        EXPECT_TRUE(is_json(answer)) << answer;
        EXPECT_EQ(answer.rfind(R"({"ok":true,)", 0), 0u) << answer;
    }
    EXPECT_NE(ask("keys").find(R"({"key":"hard_limit","value":"0","writable":true})"),
              std::string::npos);
}

// docs/dev/COMPATIBILITY.md promises that every version 1.x has the names of 1.0.
TEST(ControlAnswer, NamesOfVersion1Stay)
{
    const std::string keys = ask("keys");
    for (const char *key : {"decay_ms", "dirty_cap", "soft_limit", "hard_limit", "profile",
                            "profile_file", "profile_growth", "background", "verbose", "huge_pages",
                            "guard", "on_error", "control", "watch_root"})
        EXPECT_NE(keys.find(R"({"key":")" + std::string(key) + '"'), std::string::npos) << key;
    for (const char *action : {"purge", "thread.purge", "profile.start", "profile.stop",
                               "profile.reset", "profile.dump"})
        EXPECT_NE(keys.find('"' + std::string(action) + '"'), std::string::npos) << action;
    EXPECT_NE(ask("version").find(R"("protocol":1,)"), std::string::npos);
    const std::string stats = ask("stats");
    for (const char *figure :
         {"allocated_bytes",  "allocated_blocks",  "large_bytes",      "large_blocks",
          "guarded_bytes",    "guarded_blocks",    "active_bytes",     "slab_bytes",
          "free_bytes",       "dirty_bytes",       "mapped_bytes",     "retained_bytes",
          "metadata_bytes",   "thread_heaps",      "purged_bytes",     "purges",
          "map_calls",        "protect_calls",     "unmap_calls",      "advise_calls",
          "remap_calls",      "counted_bytes",     "soft_limit_bytes", "hard_limit_bytes",
          "cgroup_max_bytes", "cgroup_high_bytes", "refusals",         "pinned_bytes",
          "decays",           "decay_age_ms",      "background",       "background_rounds",
          "pressure",         "pressure_spells"})
        EXPECT_NE(stats.find('"' + std::string(figure) + "\":"), std::string::npos) << figure;
}

TEST(ControlAnswer, ManyThreadsAreLeftOutByNumber)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 80; i++)
        threads.emplace_back([] { std::vector<int>(1000)[0] = 1; });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_TRUE(is_json(ask("stats")));
}

TEST(ControlAnswer, WhatDoesNotFit)
{
    EXPECT_EQ(ask("stats", 300).find(R"({"ok":false,"error":"ERANGE")"), 0u);
    for (const size_t capacity : {0u, 1u, 10u, 40u}) {
        char text[64] = "unchanged";
        EXPECT_EQ(cairn_control("stats", text, capacity), 0u);
    }
}

TEST(ControlAnswer, AnyBytesAreAnsweredByJson)
{
    std::mt19937 random(7);
    const std::string words[] = {"get ",     "set ", "do ",  "purge",   "stats", " ",
                                 "decay_ms", "9",    "\"",   "\\",      "\t",    "\x7f",
                                 "\xff",     "%s%n", "keys", "version", "{",     "stats."};
    for (int round = 0; round < 1000; round++) {
        std::string request;
        for (size_t i = random() % 8; i > 0; i--)
            request += words[random() % std::size(words)];
        EXPECT_TRUE(is_json(ask(request))) << request;
    }
    char path[] = "/tmp/\"\\\x01\xc3\xa9";
    ASSERT_EQ(cairn_set("profile_file", path), 0);
    EXPECT_EQ(ask("get profile_file"),
              R"({"ok":true,"key":"profile_file","value":"/tmp/\"\\\u0001\u00c3\u00a9"})");
}

} // namespace control_answer_test
