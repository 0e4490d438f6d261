// The note from which a reader in another process starts, and the descriptions that it leads to.
#include "watch/profile_kit.h"

#include <elf.h>
#include <link.h>
#include <string.h>

extern "C" {
#include "base/layout.h"
#include "cairn/api.h"
#include "watch/control_socket.h"
}

namespace library_layout_test
{

struct search {
    const void *found;
    unsigned count;
};

// Searches notes like tools/look/find.c, in the files that are loaded here.
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
    EXPECT_EQ(library_layout.control_place, &control_place);
}

uint64_t value_of(const void *start, layout_field place)
{
    uint64_t value = 0;
    memcpy(&value, static_cast<const char *>(start) + place.offset, place.bytes);
    return value;
}

// Like tools/look/samples.c.
TEST(LibraryLayout, LeadsToTheProfilersRecords)
{
    const profile_layout *profile = library_layout.profile;
    EXPECT_EQ(library_layout.profile_bytes, sizeof *profile);
    profile_kit::start_afresh(1);
    void *block = profile_kit::allocate(3000);
    EXPECT_EQ(value_of(profile->state, profile->state_interval_bytes), 1u);
    const char *table =
        reinterpret_cast<const char *>(value_of(profile->state, profile->state_table));
    unsigned found = 0;
    for (uint32_t i = 0; i < profile->block_count; i++) {
        const char *entry = table + profile->blocks_at + size_t{i} * profile->block_bytes;
        if (value_of(entry, profile->block_address) != reinterpret_cast<uintptr_t>(block))
            continue;
        found++;
        EXPECT_EQ(value_of(entry, profile->block_asked_bytes), 3000u);
        EXPECT_EQ(value_of(entry, profile->block_objects), 1u << profile->weight_shift);
        const char *site =
            table + profile->sites_at + value_of(entry, profile->block_site) * profile->site_bytes;
        uint64_t ready = value_of(site, profile->site_ready);
        EXPECT_GT(ready, 1u);
        EXPECT_LE(ready - 1 + value_of(site, profile->site_first_frame), profile->frame_count);
    }
    EXPECT_EQ(found, 1u);
    profile_stop();
    free_fast(block);
}

} // namespace library_layout_test
