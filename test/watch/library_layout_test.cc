// The note that a reader outside begins with, and what it leads to.
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <string.h>

extern "C" {
#include "base/layout.h"
#include "cairn/api.h"
}

namespace
{

struct search {
    const void *found;
    unsigned count;
};

// As tools/look/find.c, of the files that are loaded here.
void look_in_notes(const char *notes, size_t bytes, struct search *search)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) < bytes;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        const char *name = notes + at + sizeof note;
        const char *contents = name + ((note.n_namesz + 3) & ~3u);
        if (note.n_type == LAYOUT_NOTE && note.n_namesz == sizeof LAYOUT_NOTE_NAME &&
            memcmp(name, LAYOUT_NOTE_NAME, sizeof LAYOUT_NOTE_NAME) == 0) {
            int64_t distance;
            memcpy(&distance, contents, sizeof distance);
            search->found = contents + distance;
            search->count++;
        }
        at += sizeof note + ((note.n_namesz + 3) & ~3u) + ((note.n_descsz + 3) & ~3u);
    }
}

int see_file(struct dl_phdr_info *info, size_t, void *context)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE && info->dlpi_phdr[i].p_align != 8)
            look_in_notes(reinterpret_cast<const char *>(info->dlpi_addr) +
                              info->dlpi_phdr[i].p_vaddr,
                          info->dlpi_phdr[i].p_filesz, static_cast<struct search *>(context));
    return 0;
}

TEST(LibraryLayout, IsFoundByItsNote)
{
    struct search search = {nullptr, 0};
    dl_iterate_phdr(see_file, &search);
    EXPECT_EQ(search.count, 1u);
    EXPECT_EQ(search.found, &library_layout);
}

TEST(LibraryLayout, SaysWhatItIsAndHowLong)
{
    EXPECT_EQ(memcmp(library_layout.magic, LAYOUT_MAGIC, 16), 0);
    EXPECT_EQ(library_layout.version, uint32_t{LAYOUT_VERSION});
    EXPECT_EQ(library_layout.bytes, sizeof library_layout);
    EXPECT_STREQ(library_layout.library_version, cairn_version());
    EXPECT_EQ(library_layout.page, &page_layout);
    EXPECT_EQ(library_layout.heap, &heap_layout);
    EXPECT_EQ(library_layout.page_bytes, sizeof page_layout);
    EXPECT_EQ(library_layout.heap_bytes, sizeof heap_layout);
}

} // namespace
