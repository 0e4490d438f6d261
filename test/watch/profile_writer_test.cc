// Buffered text: whole, in order, across the buffer's end; the first error stays.

#include "watch/profile_kit.h"

#include <fcntl.h>

extern "C" {
#include "watch/profile_writer.h"
}

namespace
{

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

} // namespace
