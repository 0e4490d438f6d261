// Executable mappings with their build ids, as the file's own notes have them.

#include "watch/profile_kit.h"

#include <link.h>

extern "C" {
#include "watch/profile_maps.h"
}

namespace
{

using profile_kit::File;
using profile_kit::words;

std::string g_own_id; // of this program, as the loader shows its notes

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
        EXPECT_NE(parts[4].find("profile_maps_test"), std::string::npos) << line;
        EXPECT_EQ(parts[3], g_own_id.empty() ? "-" : g_own_id);
    }
    EXPECT_TRUE(found);
}

} // namespace
