// Stacks against sites: by offset and module, wherever a module lies, by build id and by name.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "watch/site_match.h"
}

namespace
{

class SiteMatch : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!os_module_of(own_, &program_))
            GTEST_SKIP() << "this libc does not tell where code is from";
    }
    // Sites of this program as module 1 and the C library as module 2.
    void read(const std::string &own_id, const std::string &lines)
    {
        matcher_ = std::make_unique<struct site_matcher>();
        const std::string text = "cairn-sites 1\nmodule 1 " + own_id + " " + program_.path +
                                 "\nmodule 2 - " + path_of(libc_) + "\n" + lines;
        ASSERT_TRUE(site_list_read(&matcher_->list, text.data(), text.size(), "test"));
        ASSERT_EQ(matcher_->list.refused, 0U);
    }
    static std::string path_of(uintptr_t address)
    {
        struct os_module module;
        return os_module_of(address, &module) ? module.path : "";
    }
    std::string own_id() const
    {
        const unsigned char *id;
        std::string text;
        const size_t bytes = os_module_build_id(&program_, &id);
        char digits[3];
        for (size_t i = 0; i < bytes; i++) {
            snprintf(digits, sizeof digits, "%02x", id[i]);
            text += digits;
        }
        return text.empty() ? "-" : text;
    }
    static std::string frame(int module, uintptr_t address)
    {
        struct os_module found;
        char text[64];
        if (!os_module_of(address - 1, &found))
            return "";
        snprintf(text, sizeof text, "%d+0x%zx", module, static_cast<size_t>(address - found.base));
        return text;
    }
    int match(const std::vector<uintptr_t> &frames)
    {
        return site_match(matcher_.get(), frames.data(), static_cast<unsigned>(frames.size()));
    }

    static void code() {}
    uintptr_t own_ = reinterpret_cast<uintptr_t>(&SiteMatch::code) + 1;
    uintptr_t libc_ = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "qsort")) + 1;
    struct os_module program_;
    std::unique_ptr<struct site_matcher> matcher_;
};

TEST_F(SiteMatch, TheFirstSiteThatFitsCounts)
{
    read(own_id(), "segregate long " + frame(1, own_) + " " + frame(2, libc_) + "\n" +
                       "segregate short " + frame(1, own_) + "\n");
    EXPECT_EQ(match({own_, libc_}), 0);
    EXPECT_EQ(match({own_, libc_, own_}), 0);
    EXPECT_EQ(match({own_, own_}), 1);
    EXPECT_EQ(match({own_}), 1);
    EXPECT_EQ(match({libc_, own_}), SITE_NONE);
    EXPECT_EQ(match({}), SITE_NONE);
    EXPECT_EQ(match({own_ + 1}), SITE_NONE);
    EXPECT_EQ(match({own_ + 4096}), SITE_NONE) << "the same place in another page";
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(match({own_, libc_}), 0) << "by what was remembered";
}

TEST_F(SiteMatch, AnotherBuildIsAnotherModule)
{
    std::string id = own_id();
    if (id == "-")
        GTEST_SKIP() << "this program has no build id";
    id[0] = id[0] == '0' ? '1' : '0';
    read(id, "segregate kept " + frame(1, own_) + "\n");
    EXPECT_EQ(match({own_}), SITE_NONE);
    read(own_id().substr(2), "segregate kept " + frame(1, own_) + "\n");
    EXPECT_EQ(match({own_}), SITE_NONE);
}

TEST_F(SiteMatch, WithoutABuildIdTheNameCounts)
{
    read("-", "segregate kept " + frame(1, own_) + "\n");
    EXPECT_EQ(match({own_}), 0);
    read("-", "segregate kept " + frame(2, own_) + "\n");
    EXPECT_EQ(match({own_}), SITE_NONE) << "the offset alone is not enough";
    EXPECT_TRUE(site_has_name(&matcher_->list.modules[0], program_.path));
    EXPECT_FALSE(site_has_name(&matcher_->list.modules[0], "/bin/another"));
}

TEST_F(SiteMatch, CodeOfNoFileIsNoSite)
{
    const std::vector<unsigned char> data(64);
    const auto nowhere = reinterpret_cast<uintptr_t>(data.data()) + 1;
    read(own_id(), "segregate kept " + frame(1, own_) + " 2+0x10\n");
    EXPECT_EQ(match({own_, nowhere}), SITE_NONE);
    read("-", "segregate kept 1+0x" + std::to_string(nowhere & 7) + "\n");
    EXPECT_EQ(match({nowhere & 7}), SITE_NONE);
}

TEST_F(SiteMatch, ALibraryThatIsLoadedLaterIsKnownAtOnce)
{
    void *library = dlopen("libz.so.1", RTLD_NOW);
    if (library == nullptr)
        GTEST_SKIP() << "no library to load";
    const auto late = reinterpret_cast<uintptr_t>(dlsym(library, "zlibVersion")) + 1;
    const std::string place = frame(3, late);
    const std::string name = path_of(late);
    read(own_id(), "module 3 - " + name + "\nsegregate kept " + place + "\n");
    EXPECT_EQ(match({late}), 0);
}

} // namespace
