// The text of sites: what each line means, and the sentence that each line gets that means nothing.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

extern "C" {
#include "watch/site_list.h"
}

namespace
{

struct Result {
    std::unique_ptr<struct site_list> list = std::make_unique<struct site_list>();
    bool read = false;
    std::string said;
};

Result read_text(const std::string &text)
{
    Result result;
    testing::internal::CaptureStderr();
    // On the heap without a zero byte behind it: AddressSanitizer sees what reads beyond.
    const std::unique_ptr<char[]> bytes(new char[text.size()]);
    std::copy(text.begin(), text.end(), bytes.get());
    result.read = site_list_read(result.list.get(), bytes.get(), text.size(), "/a.sites");
    result.said = testing::internal::GetCapturedStderr();
    return result;
}

const std::string kHead = "cairn-sites 1\n";
const std::string kModules = kHead + "module 1 00ffAb12 /opt/some where/program\n"
                                     "module 20 - libx.so.1\n";

TEST(SiteList, ReadsModulesGroupsAndSites)
{
    const Result result = read_text(kModules + "# a remark\n\n"
                                               "segregate kept 1+0x1234 20+0xabc\n"
                                               "  segregate\tother  20+0x1234\n"
                                               "segregate kept 1+0xfffffff000001234");
    EXPECT_EQ(result.said, "");
    ASSERT_TRUE(result.read);
    const struct site_list &list = *result.list;
    ASSERT_EQ(list.modules_count, 2U);
    EXPECT_STREQ(list.modules[0].name, "program");
    EXPECT_EQ(list.modules[0].id_bytes, 4);
    EXPECT_EQ(list.modules[0].id[2], 0xab);
    EXPECT_STREQ(list.modules[1].name, "libx.so.1");
    EXPECT_EQ(list.modules[1].id_bytes, 0);
    ASSERT_EQ(list.groups_count, 2U);
    EXPECT_STREQ(list.groups[0], "kept");
    EXPECT_STREQ(list.groups[1], "other");
    ASSERT_EQ(list.sites_count, 3U);
    EXPECT_EQ(list.depth, 2U);
    EXPECT_EQ(list.sites[0].depth, 2);
    EXPECT_EQ(list.frames[1].module, 1U);
    EXPECT_EQ(list.frames[1].offset, 0xabcU);
    EXPECT_EQ(list.sites[1].group, 1);
    EXPECT_EQ(list.frames[list.sites[2].first_frame].offset, 0xfffffff000001234U);
    EXPECT_TRUE(site_list_may_have(&list, 0x7f0000234));
    EXPECT_FALSE(site_list_may_have(&list, 0x7f0000235));
    // In the order of the file.
    const unsigned first = list.buckets[site_bucket(0x234)];
    ASSERT_EQ(first, 1U);
    EXPECT_EQ(list.sites[0].next, 2);
    EXPECT_EQ(list.sites[1].next, 3);
    EXPECT_EQ(list.sites[2].next, 0);
}

TEST(SiteList, RefusesWhatIsNoFileOfSites)
{
    for (const char *text : {"", "\n", "nonsense\n", "cairn-site 1\n", "\ncairn-sites 1\n"}) {
        const Result result = read_text(text);
        EXPECT_FALSE(result.read) << text;
        EXPECT_EQ(result.said, "cairn: sites: /a.sites is no file of sites: it does not begin "
                               "with \"cairn-sites\"\n");
    }
    for (const char *text : {"cairn-sites 2\n", "cairn-sites\n", "cairn-sites 10\n"}) {
        const Result result = read_text(text);
        EXPECT_FALSE(result.read) << text;
        EXPECT_EQ(result.said, "cairn: sites: /a.sites is of another version than the one that "
                               "is known\n");
    }
}

TEST(SiteList, EachBadLineIsLeftOutWithItsSentence)
{
    const std::string name(64, 'n');
    const struct {
        std::string line, why;
    } cases[] = {
        {"pool kept 1+0x10", "unknown word \"pool\""},
        {"module x - a", "no number of a module: \"x\""},
        {"module", "no number of a module: \"\""},
        {"module 99999999999 - a", "no number of a module: \"99999999999\""},
        {"module 1 - a", "a second module has the number \"1\""},
        {"module 2 0123a b", "no build id, nor -: \"0123a\""},
        {"module 2 xy b", "no build id, nor -: \"xy\""},
        {"module 2 ab", "no name of a file, or a very long one: \"\""},
        {"module 2 ab /a/", "no name of a file, or a very long one: \"\""},
        {"module 2 ab " + name,
         "no name of a file, or a very long one: \"" + name.substr(17) + "\""},
        {"segregate", "no frames of a site of group \"\""},
        {"segregate kept", "no frames of a site of group \"kept\""},
        {"segregate kept 1", "no frame, which is MODULE+0xOFFSET: \"1\""},
        {"segregate kept 1+10", "no frame, which is MODULE+0xOFFSET: \"1+10\""},
        {"segregate kept 1+0x", "no frame, which is MODULE+0xOFFSET: \"1+0x\""},
        {"segregate kept +0x1", "no frame, which is MODULE+0xOFFSET: \"+0x1\""},
        {"segregate kept 1+0x1g", "no frame, which is MODULE+0xOFFSET: \"1+0x1g\""},
        {"segregate kept 1+0x11111111111111111",
         "no frame, which is MODULE+0xOFFSET: \"1+0x11111111111111111\""},
        {"segregate kept 2+0x1", "a module that no line before has: \"2+0x1\""},
        {"segregate " + name + " 1+0x1",
         "one group too many, or a very long name: \"" + name.substr(17) + "\""},
        {"segregate kept \x01\xff", "no frame, which is MODULE+0xOFFSET: \"\?\?\""},
    };
    for (const auto &each : cases) {
        const Result result = read_text(kModules + each.line + "\nsegregate good 1+0x5\n");
        EXPECT_TRUE(result.read);
        EXPECT_EQ(result.said, "cairn: sites: /a.sites:4: " + each.why + ", line ignored\n");
        EXPECT_EQ(result.list->refused, 1U) << each.line;
        EXPECT_EQ(result.list->modules_count, 2U) << each.line;
        ASSERT_EQ(result.list->sites_count, 1U) << each.line;
        EXPECT_EQ(result.list->frames[result.list->sites[0].first_frame].offset, 5U);
        EXPECT_STREQ(result.list->groups[result.list->sites[0].group], "good");
    }
}

TEST(SiteList, WhatIsTooMuchIsLeftOut)
{
    std::string many = kHead;
    for (int i = 0; i < SITE_MODULES_MOST + 1; i++)
        many += "module " + std::to_string(i) + " - m\n";
    for (int i = 0; i < SITE_GROUPS_MOST + 1; i++)
        many += "segregate g" + std::to_string(i) + " 1+0x1\n";
    std::string deep = "segregate g0";
    for (int i = 0; i < SITE_FRAMES_MOST + 1; i++)
        deep += " 1+0x1";
    const Result result = read_text(many + deep + "\n");
    EXPECT_EQ(result.said,
              "cairn: sites: /a.sites:66: one module too many \"64\", line ignored\n"
              "cairn: sites: /a.sites:99: one group too many, or a very long name: \"g32\", line "
              "ignored\n"
              "cairn: sites: /a.sites:100: one frame too many: \"1+0x1\", line ignored\n");
    EXPECT_EQ(result.list->sites_count, static_cast<unsigned>(SITE_GROUPS_MOST));

    std::string sites = kModules;
    for (int i = 0; i < SITES_MOST + 20; i++)
        sites += "segregate kept 1+0x1\n";
    const Result full = read_text(sites);
    EXPECT_EQ(full.list->sites_count, static_cast<unsigned>(SITES_MOST));
    EXPECT_EQ(full.list->refused, 20U);
    EXPECT_EQ(std::count(full.said.begin(), full.said.end(), '\n'), 9);
    EXPECT_NE(full.said.find(": more lines are ignored\n"), std::string::npos);

    std::string frames = kModules;
    for (int i = 0; i < 500; i++) {
        frames += "segregate kept";
        for (int k = 0; k < SITE_FRAMES_MOST; k++)
            frames += " 1+0x1";
        frames += "\n";
    }
    const Result framed = read_text(frames);
    EXPECT_EQ(framed.list->frames_count, static_cast<unsigned>(SITE_ALL_FRAMES));
    EXPECT_EQ(framed.list->sites_count, static_cast<unsigned>(SITE_ALL_FRAMES / SITE_FRAMES_MOST));
}

TEST(SiteList, AnyBytesAreReadWithoutHarm)
{
    std::mt19937 random(1);
    const std::string good = kModules + "segregate kept 1+0x1234 20+0xabc\nsegregate a 1+0x5\n";
    for (int round = 0; round < 3000; round++) {
        std::string text = good;
        for (unsigned changes = random() % 8; changes > 0; changes--)
            text[random() % text.size()] = static_cast<char>(random());
        text.resize(random() % (text.size() + 1));
        const Result result = read_text(text);
        const struct site_list &list = *result.list;
        EXPECT_LE(list.sites_count, 2U);
        for (unsigned i = 0; i < list.sites_count; i++) {
            EXPECT_LT(list.sites[i].group, list.groups_count);
            EXPECT_LE(list.sites[i].first_frame + list.sites[i].depth, list.frames_count);
        }
        for (unsigned i = 0; i < list.frames_count; i++)
            EXPECT_LT(list.frames[i].module, list.modules_count);
    }
}

} // namespace
