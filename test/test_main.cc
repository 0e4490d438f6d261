// The main function of programs with GoogleTest. A program has the cases of all files of a folder;
// with --file=stack_test it runs those of one file.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace
{

// Adds the cases of all other files to those that the filter leaves out. Returns the number of
// cases in the file.
int only_file(const std::string &file)
{
    std::string &filter = testing::GTEST_FLAG(filter);
    char separator = filter.find('-') == std::string::npos ? '-' : ':';
    int found = 0;
    const testing::UnitTest &all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); i++) {
        const testing::TestSuite &suite = *all.GetTestSuite(i);
        for (int j = 0; j < suite.total_test_count(); j++) {
            const testing::TestInfo &test = *suite.GetTestInfo(j);
            if (std::filesystem::path(test.file()).stem() == file) {
                found++;
                continue;
            }
            filter += separator + (std::string(suite.name()) + '.' + test.name());
            separator = ':';
        }
    }
    return found;
}

} // namespace

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    std::string argument = argc > 1 ? argv[1] : "";
    if (argument.rfind("--file=", 0) == 0 && only_file(argument.substr(7)) == 0) {
        fprintf(stderr, "no case of %s is in this program\n", argument.c_str() + 7);
        return 2;
    }
    return RUN_ALL_TESTS();
}
