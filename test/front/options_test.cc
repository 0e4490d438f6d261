// Options: every key, values in and out of bounds, and any other text that an environment may hold.

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <random>
#include <string>

extern "C" {
#include "front/options.h"
}

namespace options_test
{

constexpr size_t kMiB = size_t{1} << 20;

struct Parsed {
    struct options options;
    std::string warnings;
    std::unique_ptr<char[]> text; // the text that the options point into
};

constexpr char kEveryKey[] =
    "decay_ms:250,dirty_cap:32M,soft_limit:2G,hard_limit:3G,huge_pages:on,guard:4321,verbose:1,"
    "background:on,control:/tmp/a.%p,watch_root:/host,"
    "profile:64K,profile_growth:100M,profile_file:/tmp/a.heap,"
    "trace:/tmp/a.trace,trace_limit:5G";

// The text is in a block of exactly its length, so that a sanitizer reports a read beyond it.
Parsed parse(const std::string &text)
{
    Parsed parsed = {{{77, 78, 79, 73, HUGE_PAGES_AUTO},
                      76,
                      75,
                      74,
                      {nullptr, 0},
                      false,
                      false,
                      false,
                      {nullptr, 0},
                      {nullptr, 0},
                      false,
                      false,
                      {nullptr, 0},
                      72},
                     "",
                     std::unique_ptr<char[]>(new char[text.size() + 1])};
    memcpy(parsed.text.get(), text.c_str(), text.size() + 1);
    testing::internal::CaptureStderr();
    errno = 4321;
    options_parse(&parsed.options, parsed.text.get(), "TEST");
    EXPECT_EQ(errno, 4321);
    parsed.warnings = testing::internal::GetCapturedStderr();
    return parsed;
}

bool is_unchanged(const struct options &options)
{
    return options.pages.decay_ms == 77 && options.pages.dirty_cap_bytes == 78 &&
           options.pages.soft_limit_bytes == 79 && options.pages.hard_limit_bytes == 73 &&
           !options.background && options.control.length == 0 && options.watch_root.length == 0 &&
           !options.soft_of_group && !options.hard_of_group &&
           options.pages.huge_pages == HUGE_PAGES_AUTO && options.guard == 76 &&
           options.profile_bytes == 75 && options.profile_growth_bytes == 74 &&
           options.profile_file.length == 0 && !options.verbose && !options.goes_on &&
           options.trace.length == 0 && options.trace_limit_bytes == 72;
}

TEST(Options, EveryKeyHasItsField)
{
    const Parsed parsed = parse(kEveryKey);
    EXPECT_EQ(parsed.warnings, "");
    EXPECT_EQ(parsed.options.pages.decay_ms, 250u);
    EXPECT_EQ(parsed.options.pages.dirty_cap_bytes, 32 * kMiB);
    EXPECT_EQ(parsed.options.pages.soft_limit_bytes, 2048 * kMiB);
    EXPECT_EQ(parsed.options.pages.hard_limit_bytes, 3072 * kMiB);
    EXPECT_TRUE(parsed.options.background);
    EXPECT_EQ(parsed.options.control.length, strlen("/tmp/a.%p"));
    EXPECT_EQ(parsed.options.watch_root.length, strlen("/host"));
    EXPECT_EQ(parsed.options.pages.huge_pages, HUGE_PAGES_ON);
    EXPECT_EQ(parsed.options.guard, 4321u);
    EXPECT_TRUE(parsed.options.verbose);
    EXPECT_EQ(parsed.options.profile_bytes, 65536u);
    EXPECT_EQ(parsed.options.profile_growth_bytes, 100 * kMiB);
    EXPECT_EQ(parsed.options.profile_file.length, strlen("/tmp/a.heap"));
    EXPECT_EQ(std::string(parsed.options.trace.start, parsed.options.trace.length), "/tmp/a.trace");
    EXPECT_EQ(parsed.options.trace_limit_bytes, 5120 * kMiB);
}

TEST(Options, NothingIsFine)
{
    for (const char *text : {"", ",", ",,,"}) {
        const Parsed parsed = parse(text);
        EXPECT_EQ(parsed.warnings, "");
        EXPECT_TRUE(is_unchanged(parsed.options));
    }
}

TEST(Options, TheLaterOneWins)
{
    EXPECT_EQ(parse("decay_ms:1,decay_ms:2").options.pages.decay_ms, 2u);
    EXPECT_EQ(parse("decay_ms:1,decay_ms:x").options.pages.decay_ms, 1u);
}

TEST(Options, Bytes)
{
    const auto cap = [](const char *value) {
        const Parsed parsed = parse(std::string("dirty_cap:") + value);
        EXPECT_EQ(parsed.warnings, "") << value;
        return parsed.options.pages.dirty_cap_bytes;
    };
    EXPECT_EQ(cap("0"), 0u);
    EXPECT_EQ(cap("12345"), 12345u);
    EXPECT_EQ(cap("7K"), 7u * 1024);
    EXPECT_EQ(cap("7M"), 7 * kMiB);
    EXPECT_EQ(cap("7G"), 7 * 1024 * kMiB);
    EXPECT_EQ(cap("9223372036854775807"), size_t{PTRDIFF_MAX});
    EXPECT_EQ(cap("8589934591G"), size_t{8589934591} << 30);
}

TEST(Options, Switches)
{
    for (const char *on : {"1", "on", "true"})
        EXPECT_TRUE(parse(std::string("verbose:") + on).options.verbose) << on;
    for (const char *off : {"0", "off", "false"}) {
        EXPECT_FALSE(parse(std::string("verbose:1,verbose:") + off).options.verbose) << off;
    }
}

// 1 is a number here.
TEST(Options, GuardTakesANumberOrASwitch)
{
    const auto guard = [](const char *value) {
        const Parsed parsed = parse(std::string("guard:") + value);
        EXPECT_EQ(parsed.warnings, "") << value;
        return parsed.options.guard;
    };
    EXPECT_EQ(guard("0"), 0u);
    EXPECT_EQ(guard("1"), 1u);
    EXPECT_EQ(guard("4294967295"), UINT32_MAX);
    EXPECT_EQ(guard("on"), unsigned{GUARD_DEFAULT_INTERVAL});
    EXPECT_EQ(guard("true"), unsigned{GUARD_DEFAULT_INTERVAL});
    EXPECT_EQ(guard("off"), 0u);
    EXPECT_EQ(guard("false"), 0u);
}

TEST(Options, TheProfilerTakesBytesOrASwitch)
{
    const auto profile = [](const char *value) {
        const Parsed parsed = parse(std::string("profile:") + value);
        EXPECT_EQ(parsed.warnings, "") << value;
        return parsed.options.profile_bytes;
    };
    EXPECT_EQ(profile("0"), 0u);
    EXPECT_EQ(profile("off"), 0u);
    EXPECT_EQ(profile("1"), size_t{PROFILE_DEFAULT_INTERVAL});
    EXPECT_EQ(profile("on"), size_t{PROFILE_DEFAULT_INTERVAL});
    EXPECT_EQ(profile("2"), 2u);
    EXPECT_EQ(profile("1M"), kMiB);
}

TEST(Options, WhatFollowsAWrongFree)
{
    EXPECT_FALSE(parse("on_error:report,on_error:abort").options.goes_on);
    EXPECT_EQ(parse("on_error:abort").warnings, "");
    const Parsed parsed = parse("on_error:report");
    EXPECT_EQ(parsed.options.goes_on, !config_hardened);
    EXPECT_EQ(parsed.warnings.empty(), !config_hardened)
        << "hardened builds always end the process";
}

TEST(Options, TheLimitsOfTheCgroup)
{
    const Parsed soft = parse("soft_limit:cgroup");
    EXPECT_EQ(soft.warnings, "");
    EXPECT_TRUE(soft.options.soft_of_group);
    EXPECT_FALSE(soft.options.hard_of_group);
    EXPECT_EQ(soft.options.pages.soft_limit_bytes, 0u)
        << "the start of the library reads the group's limit";
    const Parsed hard = parse("hard_limit:cgroup");
    EXPECT_TRUE(hard.options.hard_of_group);
    EXPECT_EQ(hard.options.pages.hard_limit_bytes, 0u);
    EXPECT_FALSE(parse("hard_limit:cgroup,hard_limit:5").options.hard_of_group);
    EXPECT_TRUE(parse("hard_limit:cgroup,hard_limit:x").options.hard_of_group);
}

TEST(Options, ABadItemGivesOneWarningAndChangesNothing)
{
    const std::string long_key(500, 'k');
    for (const std::string &item : {std::string("unknown:1"),
                                    std::string("decay_ms"),
                                    std::string("decay_ms:"),
                                    std::string("decay_ms:-1"),
                                    std::string("decay_ms:0x10"),
                                    std::string("decay_ms:4294967296"),
                                    std::string("decay_ms:99999999999999999999999"),
                                    std::string("decay_m:1"),
                                    std::string("decay_mss:1"),
                                    std::string("dirty_cap:M"),
                                    std::string("dirty_cap:1KM"),
                                    std::string("dirty_cap:1KB"),
                                    std::string("dirty_cap:1 M"),
                                    std::string("dirty_cap:1iB"),
                                    std::string("dirty_cap:1Kib2"),
                                    std::string("dirty_cap:1.5M"),
                                    std::string("dirty_cap:9223372036854775808"),
                                    std::string("dirty_cap:8589934592G"),
                                    std::string("guard:"),
                                    std::string("guard:-1"),
                                    std::string("guard:4294967296"),
                                    std::string("guard:often"),
                                    std::string("guard:1K"),
                                    std::string("huge_pages:2"),
                                    std::string("verbose"),
                                    std::string(":"),
                                    std::string(":1"),
                                    std::string("verbose::1"),
                                    std::string("on_error:"),
                                    std::string("on_error:ignore"),
                                    std::string("report_file:"),
                                    std::string("profile:"),
                                    std::string("profile:often"),
                                    std::string("profile_growth:"),
                                    std::string("profile_file:"),
                                    std::string("profile_file:relative"),
                                    "profile_file:/" + std::string(300, 'k'),
                                    std::string("report_file:relative"),
                                    "report_file:/" + long_key,
                                    long_key,
                                    long_key + ":1",
                                    "verbose:" + long_key}) {
        const Parsed parsed = parse(item);
        EXPECT_TRUE(is_unchanged(parsed.options)) << item;
        EXPECT_EQ(parsed.warnings.rfind("cairn: ", 0), 0u) << item;
        EXPECT_EQ(std::count(parsed.warnings.begin(), parsed.warnings.end(), '\n'), 1) << item;
        EXPECT_NE(parsed.warnings.find(item.substr(0, 60)), std::string::npos) << parsed.warnings;
        EXPECT_NE(parsed.warnings.find(" in TEST, ignored"), std::string::npos);
    }
}

TEST(Options, BadItemsOfSteering)
{
    for (const std::string &item :
         {std::string("soft_limit:cgroups"), std::string("soft_limit:"),
          std::string("hard_limit:none"), std::string("hard_limit:-1"), std::string("background:"),
          std::string("background:2"), std::string("control:"), std::string("control:relative"),
          "control:/" + std::string(100, 'k'), std::string("watch_root:"),
          std::string("watch_root:host"), "watch_root:/" + std::string(127, 'k')}) {
        const Parsed parsed = parse(item);
        EXPECT_TRUE(is_unchanged(parsed.options)) << item;
        EXPECT_EQ(parsed.warnings.rfind("cairn: bad value of option ", 0), 0u) << item;
    }
    EXPECT_EQ(parse("control:/" + std::string(99, 'k')).options.control.length, 100u);
    EXPECT_EQ(parse("watch_root:/" + std::string(126, 'k')).options.watch_root.length, 127u);
}

TEST(Options, ABadTraceGivesOneWarningAndChangesNothing)
{
    for (const std::string &item :
         {std::string("trace:"), std::string("trace:relative"), std::string("trace_limit:much"),
          "trace:/" + std::string(1000, 'k')}) {
        const Parsed parsed = parse(item);
        EXPECT_TRUE(is_unchanged(parsed.options)) << item;
        EXPECT_EQ(parsed.warnings.rfind("cairn: bad value of option", 0), 0u) << item;
    }
}

// The syntax of other allocators' options.
TEST(Options, AnEqualsSignIsAColon)
{
    const Parsed parsed = parse("decay_ms=5,trace=/tmp/a:b");
    EXPECT_EQ(parsed.warnings, "");
    EXPECT_EQ(parsed.options.pages.decay_ms, 5u);
    EXPECT_EQ(std::string(parsed.options.trace.start, parsed.options.trace.length), "/tmp/a:b");
    EXPECT_EQ(parse("trace:/tmp/a=b").options.trace.length, strlen("/tmp/a=b"));
    EXPECT_EQ(parse("=").warnings.rfind("cairn: unknown option \"=\" in TEST, ignored: ", 0), 0u);
}

TEST(Options, FormsThatLeaveNoDoubt)
{
    for (const char *text : {"dirty_cap:7m", "dirty_cap:7Mi", "dirty_cap:7MiB", "dirty_cap:7mib",
                             " dirty_cap : 7M ", "DIRTY_CAP:7M", "dirty-cap:7M", "dirty_cap=7M"}) {
        const Parsed parsed = parse(text);
        EXPECT_EQ(parsed.warnings, "") << text;
        EXPECT_EQ(parsed.options.pages.dirty_cap_bytes, 7 * kMiB) << text;
    }
    EXPECT_EQ(parse("guard:5, verbose:1 ").warnings, "");
    for (const char *word : {"On", "TRUE", "yes"})
        EXPECT_TRUE(parse(std::string("verbose:") + word).options.verbose) << word;
    EXPECT_FALSE(parse("verbose:1,verbose:No").options.verbose);
    EXPECT_TRUE(parse("soft_limit:CGROUP").options.soft_of_group);
}

// A warning says what to write, and that a refused limit is no limit.
TEST(Options, AWarningSaysWhatIsRight)
{
    const auto warning_of = [](const std::string &item) {
        const std::string text = parse(item).warnings;
        const std::string head = "cairn: bad value of option \"" + item + "\" in TEST, ignored";
        EXPECT_EQ(text.rfind(head, 0), 0u) << text;
        return text.substr(std::min(head.size(), text.size()));
    };
    EXPECT_EQ(warning_of("dirty_cap:1MB"), ": write bytes, or a number with K, M or G\n");
    EXPECT_EQ(warning_of("decay_ms:1s"), ": write milliseconds, 0 to 4294967295\n");
    EXPECT_EQ(warning_of("verbose:2"), ": write on or off\n");
    EXPECT_EQ(warning_of("huge_pages:2"), ": write auto, on or off\n");
    EXPECT_EQ(warning_of("trace:a"), ": write an absolute path of less than 900 bytes\n");
    EXPECT_EQ(warning_of("report_file:a"), ": write an absolute path of less than 256 bytes\n");
    EXPECT_EQ(warning_of("soft_limit:1MB"),
              ", so the earlier limit holds: write bytes, or a number with K, M or G, or cgroup\n");
    EXPECT_EQ(parse("hard_limit:0,hard_limit:1MB").warnings,
              "cairn: bad value of option \"hard_limit:1MB\" in TEST, ignored, so there is no "
              "limit: write bytes, or a number with K, M or G, or cgroup\n");
    const std::string unknown = parse("soft_limits:1").warnings;
    EXPECT_NE(unknown.find("ignored: the options are decay_ms, dirty_cap, soft_limit, "),
              std::string::npos)
        << unknown;
    EXPECT_NE(unknown.find(", watch_root\n"), std::string::npos) << unknown;
}

TEST(Options, AReportFileThatCannotBeOpened)
{
    const Parsed parsed = parse("report_file:/no/such/folder/file");
    EXPECT_TRUE(is_unchanged(parsed.options));
    EXPECT_EQ(parsed.warnings, "cairn: cannot open report file /no/such/folder/file: ENOENT\n");
}

TEST(Options, ABadItemDoesNotSpoilItsNeighbours)
{
    const Parsed parsed = parse("what,decay_ms:5,dirty_cap:?,soft_limit:6,");
    EXPECT_EQ(parsed.options.pages.decay_ms, 5u);
    EXPECT_EQ(parsed.options.pages.dirty_cap_bytes, 78u);
    EXPECT_EQ(parsed.options.pages.soft_limit_bytes, 6u);
    EXPECT_EQ(std::count(parsed.warnings.begin(), parsed.warnings.end(), '\n'), 2);
}

// Random texts of characters with a meaning, and of any bytes. Every item is either applied or
// warned about.
TEST(Options, RandomTexts)
{
    std::mt19937 random(6);
    const std::string words[] = {"decay_ms", "dirty_cap", "soft_limit", "hard_limit", "huge_pages",
                                 "guard",    "verbose",   ":",          ",",          "1",
                                 "0",        "K",         "M",          "on",         "cgroup",
                                 "9",        "%s%n",      "=",          "iB",         " "};
    for (int round = 0; round < 3000; round++) {
        std::string text;
        for (size_t i = random() % 20; i > 0; i--) {
            if (random() % 8 == 0)
                text += static_cast<char>(1 + random() % 255);
            else
                text += words[random() % std::size(words)];
        }
        ptrdiff_t items = 0;
        for (size_t at = 0; at < text.size(); at++)
            items += text[at] != ',' && (at == 0 || text[at - 1] == ',');
        const Parsed parsed = parse(text);
        const ptrdiff_t warnings =
            std::count(parsed.warnings.begin(), parsed.warnings.end(), '\n') -
            std::count(text.begin(), text.end(), '\n'); // the line ends that the warnings quote
        ASSERT_LE(warnings, items) << text;
        ASSERT_LE(parsed.options.pages.decay_ms, UINT32_MAX) << text;
        ASSERT_LE(parsed.options.pages.dirty_cap_bytes, size_t{PTRDIFF_MAX}) << text;
    }
}

TEST(Options, TheReportCanBeParsedAgain)
{
    Parsed first = parse(kEveryKey);
    testing::internal::CaptureStderr();
    options_report(&first.options, "");
    std::string line = testing::internal::GetCapturedStderr();
    const std::string head = "cairn: options: ";
    ASSERT_EQ(line.rfind(head, 0), 0u) << line;
    line = line.substr(head.size(), line.size() - head.size() - 1);
    const Parsed second = parse(line);
    EXPECT_EQ(second.warnings, "");
    EXPECT_EQ(second.options.pages.decay_ms, 250u);
    EXPECT_EQ(second.options.pages.dirty_cap_bytes, 32 * kMiB);
    EXPECT_EQ(second.options.pages.soft_limit_bytes, 2048 * kMiB);
    EXPECT_EQ(second.options.guard, 4321u);
    EXPECT_EQ(second.options.pages.huge_pages, HUGE_PAGES_ON);
    EXPECT_EQ(second.options.background, first.options.background);
    EXPECT_TRUE(second.options.verbose);
}

TEST(Options, HugePagesHaveThreeWords)
{
    EXPECT_EQ(parse("huge_pages:auto").options.pages.huge_pages, HUGE_PAGES_AUTO);
    EXPECT_EQ(parse("huge_pages:off").options.pages.huge_pages, HUGE_PAGES_OFF);
    EXPECT_EQ(parse("huge_pages:off,huge_pages:1").options.pages.huge_pages, HUGE_PAGES_ON);
    EXPECT_NE(parse("huge_pages:aut").warnings, "");
}

} // namespace options_test
