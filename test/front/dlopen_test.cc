// dlopen of the shared library. test/hard/deep_bind.c tests plug-ins that exchange blocks with the
// program, and the run path of the caller.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <string.h>

#include <string>

namespace
{

// The output of this program, run again with these options, when it opens the plug-in.
std::string lines_of_opening(const std::string &options)
{
    std::string command = "CAIRN_OPTIONS=" + options + " " CAIRN_TEST_EMULATOR " '" +
                          testing::internal::GetArgvs()[0] +
                          "' --gtest_filter='*OpensAPlugin' 2>&1";
    std::string lines;
    FILE *output = popen(command.c_str(), "r");
    if (!output)
        return "popen failed";
    char line[1000];
    while (fgets(line, sizeof line, output))
        if (strstr(line, "cairn: dlopen"))
            lines += line;
    EXPECT_EQ(pclose(output), 0) << command;
    return lines;
}

TEST(Dlopen, OpensAPlugin)
{
    for (int mode : {RTLD_NOW, RTLD_NOW | RTLD_DEEPBIND}) {
        void *handle = dlopen(DEEP_PLUGIN, mode);
        ASSERT_NE(handle, nullptr) << dlerror();
        dlclose(handle);
    }
}

TEST(Dlopen, IsTheLibrarysOwn)
{
    Dl_info place;
    ASSERT_NE(dladdr(reinterpret_cast<void *>(dlopen), &place), 0);
    EXPECT_NE(std::string(place.dli_fname).find("libcairn-malloc"), std::string::npos);
}

TEST(Dlopen, VerboseSaysOnceThatTheFlagIsIgnored)
{
    EXPECT_EQ(lines_of_opening("verbose:0"), "");
    EXPECT_EQ(lines_of_opening("verbose:1"),
              "cairn: dlopen of " DEEP_PLUGIN ": RTLD_DEEPBIND ignored, the plug-in would use "
              "libc's malloc\n");
}

TEST(Dlopen, WhatIsMissingIsToldByDlerror)
{
    EXPECT_EQ(dlopen("/no/such/plug-in.so", RTLD_NOW | RTLD_DEEPBIND), nullptr);
    EXPECT_NE(std::string(dlerror()).find("/no/such/plug-in.so"), std::string::npos);
}

} // namespace
