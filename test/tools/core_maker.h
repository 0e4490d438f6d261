// Makes a small core file of a program with Cairn, for tests that damage it. The layout of its
// library's structs is the maker's own: the reader takes all offsets from the description.
//
//   0x10000     the library: description, classes, heap, pool of guarded blocks, arena
//   0x100000    page map: the root, then the leaf of region 1
//   0x200000    headers of spans, 1 KiB each, with the data behind them
//   0x2000000   pages of the heap, in region 1
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "base/layout.h"
}

namespace core_kit
{

enum : uint64_t {
    kPage = 4096,
    kLibrary = 0x10000,
    kPageLayout = kLibrary + 0x200,
    kHeapLayout = kLibrary + 0x400,
    kGuardedLayout = kLibrary + 0x600,
    kProfileLayout = kLibrary + 0x700,
    kClasses = kLibrary + 0x800,
    kHeap = kLibrary + 0xa00,
    kState = kLibrary + 0xb00, // words of the page layer, the profiler and others: all 0
    kArena = kLibrary + 0xc00,
    kPool = kLibrary + 0xd00,
    kPoolSlots = kLibrary + 0xe00,
    kMap = 0x100000,
    kRegions = 8192,
    kLeafDistance = kRegions * 8,
    kLeafBytes = kRegions * 8,
    kHeaders = 0x200000,
    kHeaderStep = 1024,
    kHeaderBytes = 64,
    kRegionShift = 25,
    kData = uint64_t{1} << kRegionShift,
};
enum { kTagFree = 1, kTagKept = 3, kTagLarge = 4, kTagGuarded = 8, kTagSlab = 16 };
enum { kClassCount = 2, kPackedClass = 9, kPackedWords = 64, kHeapBytes = 64 };

struct Segment {
    uint64_t address;
    std::string bytes;
    uint64_t unwritten = 0; // further bytes, which the file lacks
};

inline layout_field at(unsigned offset, unsigned bytes)
{
    return {static_cast<uint16_t>(offset), static_cast<uint16_t>(bytes)};
}

inline const void *pointer_to(uint64_t address)
{
    return reinterpret_cast<const void *>(static_cast<uintptr_t>(address));
}

template <typename Value> void put(std::string &bytes, uint64_t offset, const Value &value)
{
    if (bytes.size() < offset + sizeof value)
        bytes.resize(offset + sizeof value);
    memcpy(&bytes[offset], &value, sizeof value);
}

static_assert(sizeof(struct library_layout) <= kPageLayout - kLibrary);
static_assert(sizeof(struct page_layout) <= kHeapLayout - kPageLayout);
static_assert(sizeof(struct heap_layout) <= kGuardedLayout - kHeapLayout);
static_assert(sizeof(struct guarded_layout) <= kProfileLayout - kGuardedLayout);
static_assert(sizeof(struct profile_layout) <= kClasses - kProfileLayout);

class CoreMaker
{
  public:
    struct library_layout root = {};
    struct page_layout page = {};
    struct heap_layout heap = {};
    struct guarded_layout guarded = {};
    struct profile_layout profile = {};
    // library (its descriptions are written last), page map, headers, pages
    std::vector<Segment> segments;
    std::vector<std::string> note_segments;
    size_t copies_of_notes = 1; // program headers that name the first notes

    CoreMaker()
    {
        describe_pages();
        describe_heap();
        describe_rest();
        segments = {{kLibrary, std::string(kPage, '\0')},
                    {kMap, std::string(kLeafDistance + kLeafBytes, '\0')},
                    {kHeaders, std::string(8 * kHeaderStep, '\0')},
                    {kData, std::string(8 * kPage, '\0')}};
        put_class(0, 64, 1, 63);
        put_class(1, 256, 1, 15);
        put_word(kHeap + 8, 1); // its state
        map(1, kLeafDistance);
        fill_heap();
        note_segments = {registers() + files()};
    }

    // Writes a word of the core's memory.
    void put_word(uint64_t address, uint64_t word) { put_value(address, word); }
    template <typename Value> void put_value(uint64_t address, Value value)
    {
        for (Segment &segment : segments)
            if (address - segment.address < segment.bytes.size())
                put(segment.bytes, address - segment.address, value);
    }
    void put_class(unsigned number, uint32_t size, uint32_t pages, uint32_t capacity)
    {
        put_value(kClasses + 16 * number, size);
        put_value(kClasses + 16 * number + 4, pages);
        put_value(kClasses + 16 * number + 8, capacity);
    }
    void map(uint64_t region, uint64_t distance) { put_word(kMap + 8 * region, distance); }
    // Makes the first page of a span lead to a header.
    void put_entry(uint64_t address, uint64_t header)
    {
        uint64_t entry = (address >> 12) % kRegions;
        put_word(kMap + kLeafDistance + 8 * entry, header - kMap - kLeafDistance);
    }
    static uint64_t header(unsigned number) { return kHeaders + number * kHeaderStep; }
    void put_slab(unsigned number, uint64_t start, unsigned size_class, uint64_t bytes,
                  uint64_t capacity, uint64_t limit)
    {
        uint64_t place = header(number);
        put_word(place, kHeap);
        put_word(place + 8, start - bytes); // slots are counted from 1
        put_word(place + 16, limit);
        put_word(place + 24, bytes);
        put_value<uint16_t>(place + 48, static_cast<uint16_t>(kTagSlab + size_class));
        put_value<uint16_t>(place + 50, 12); // units of 64 bytes of the data behind it
        put_value<uint32_t>(place + 52, static_cast<uint32_t>(capacity));
        put_entry(start, place);
    }
    void put_pages(unsigned number, uint64_t start, unsigned tag, uint64_t pages)
    {
        uint64_t place = header(number);
        put_word(place + 8, start);
        put_word(place + 32, pages);
        put_value<uint16_t>(place + 48, static_cast<uint16_t>(tag));
        put_entry(start, place);
    }

    // The whole file.
    std::string bytes()
    {
        write_descriptions();
        std::vector<Elf64_Phdr> entries;
        std::string contents;
        uint64_t count = note_segments.size() + copies_of_notes - 1 + segments.size();
        uint64_t start = sizeof(Elf64_Ehdr) + count * sizeof(Elf64_Phdr);
        for (size_t i = 0; i < note_segments.size(); i++)
            for (size_t copy = 0; copy < (i == 0 ? copies_of_notes : 1); copy++) {
                entries.push_back(entry_of(PT_NOTE, 0, start + contents.size(), note_segments[i]));
                if (copy + 1 == (i == 0 ? copies_of_notes : 1))
                    contents += note_segments[i];
            }
        for (const Segment &segment : segments) {
            entries.push_back(
                entry_of(PT_LOAD, segment.address, start + contents.size(), segment.bytes));
            entries.back().p_memsz += segment.unwritten;
            contents += segment.bytes;
        }
        std::string file;
        put(file, 0, file_header(entries.size()));
        for (const Elf64_Phdr &entry : entries)
            put(file, file.size(), entry);
        return file + contents;
    }

  private:
    static Elf64_Phdr entry_of(uint32_t type, uint64_t address, uint64_t offset,
                               const std::string &bytes)
    {
        Elf64_Phdr entry = {};
        entry.p_type = type;
        entry.p_flags = PF_R | PF_W;
        entry.p_vaddr = address;
        entry.p_offset = offset;
        entry.p_filesz = entry.p_memsz = bytes.size();
        return entry;
    }
    static Elf64_Ehdr file_header(size_t count)
    {
        Elf64_Ehdr header = {};
        memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_type = ET_CORE;
        header.e_phoff = sizeof header;
        header.e_phentsize = sizeof(Elf64_Phdr);
        header.e_phnum = static_cast<uint16_t>(count);
        return header;
    }
    static std::string note(uint32_t type, const std::string &contents)
    {
        Elf64_Nhdr head = {5, static_cast<uint32_t>(contents.size()), type};
        std::string bytes;
        put(bytes, 0, head);
        bytes += std::string("CORE\0\0\0\0", 8) + contents;
        bytes.resize((bytes.size() + 3) / 4 * 4);
        return bytes;
    }
    static std::string registers()
    {
        std::string contents(112 + 27 * 8 + 8, '\0');
        put(contents, 112, kData + 64); // a pointer to a block
        return note(NT_PRSTATUS, contents);
    }
    static std::string files()
    {
        std::string contents;
        const uint64_t words[] = {1, kPage, kLibrary, kLibrary + kPage, 0};
        put(contents, 0, words);
        return note(NT_FILE, contents + std::string("/nowhere/libcairn.so") + '\0');
    }

    void describe_pages()
    {
        page.page_map = pointer_to(kMap);
        page.arenas = pointer_to(kArena);
        page.arena_count = pointer_to(kArena + 8);
        page.state = page.meta_bytes = page.kept_outside_pages = pointer_to(kState);
        page.page_shift = 12;
        page.address_bits = 38;
        page.region_shift = kRegionShift;
        page.region_count = kRegions;
        page.span_bytes = kHeaderBytes;
        page.arena_bytes = 64;
        page.arena_limit = 16;
        page.tag_free = kTagFree;
        page.tag_moving = 2;
        page.tag_kept = kTagKept;
        page.tag_large = kTagLarge;
        page.tag_huge = 5;
        page.tag_run = 6;
        page.tag_run_huge = 7;
        page.tag_guarded = kTagGuarded;
        page.tag_revoked = 9;
        page.tag_slab = kTagSlab;
        page.span_owner = at(0, 8);
        page.span_base = at(8, 8);
        page.span_fresh_slot = at(16, 8);
        page.span_size_bytes = at(24, 8);
        page.span_pages = at(32, 8);
        page.span_dirty_pages = at(40, 8);
        page.span_tag = at(48, 2);
        page.span_side_units = at(50, 2);
        page.span_capacity = at(52, 4);
        page.span_next = at(56, 8);
        page.arena_base = at(0, 8);
        page.arena_pages = at(8, 8);
        page.arena_begun = at(16, 8);
        page.state_committed_pages = at(0, 8);
    }
    void describe_heap()
    {
        heap.size_classes = pointer_to(kClasses);
        heap.all_heaps = pointer_to(kState + 64);
        heap.heap_generation = pointer_to(kState + 72);
        heap.class_count = kClassCount;
        heap.packed_class = kPackedClass;
        heap.zero_size_class = UINT32_MAX;
        heap.size_class_bytes = 16;
        heap.heap_bytes = kHeapBytes;
        heap.cold_area_bytes = 64;
        heap.links_at = 8;
        heap.packed_bytes = 8;
        heap.packed_words = kPackedWords;
        heap.packed_pages = 8;
        heap.packed_words_at = 8;
        heap.kept_places = 4;
        heap.kept_pages = 16;
        heap.owner_tags = 7;
        heap.state_active = 1;
        heap.state_orphan = 2;
        heap.state_busy = 3;
        heap.state_private = 4;
        heap.use_mask = 3;
        heap.use_aside = 2;
        heap.link_live = 255;
        heap.link_profiled = 254;
        heap.link_remote = 253;
        heap.link_quarantined = 252;
        heap.link_borrowed = 251;
        heap.class_size_bytes = at(0, 4);
        heap.class_pages = at(4, 4);
        heap.class_capacity = at(8, 4);
        heap.cold_use = at(4, 4);
        heap.heap_next = at(0, 8);
        heap.heap_state = at(8, 4);
        heap.heap_generation_field = at(12, 4);
        heap.heap_kept = at(16, 32);
        heap.heap_mailboxes = at(48, 16);
    }
    void describe_rest()
    {
        guarded.pool = pointer_to(kPool);
        guarded.slot_count = 2;
        guarded.slot_bytes = 80;
        guarded.state_live = 2;
        guarded.pool_start = at(0, 8);
        guarded.pool_page_bytes = at(8, 8);
        guarded.pool_slot_bytes = at(16, 8);
        guarded.pool_slots = at(24, 8);
        guarded.slot_state = at(64, 4);
        guarded.slot_turn = at(72, 8);
        profile.state = pointer_to(kState + 128);
        profile.site_count = profile.block_count = profile.frame_count = 4;
        profile.depth = 4;
        profile.site_bytes = profile.block_bytes = 64;
        profile.sites_at = 64;
        profile.blocks_at = 320;
        profile.frames_at = 640;
        profile.weight_shift = 8;
        profile.state_table = at(0, 8);
        profile.state_interval_bytes = at(8, 8);
        profile.site_ready = at(0, 4);
        profile.site_first_frame = at(4, 4);
        profile.block_address = at(0, 8);
        profile.block_site = at(8, 4);
        profile.block_thread = at(12, 4);
        profile.block_asked_bytes = at(16, 8);
        profile.block_objects = at(24, 8);
        profile.block_time_ms = at(32, 8);
        memcpy(root.magic, LAYOUT_MAGIC, sizeof root.magic);
        root.version = LAYOUT_VERSION;
        root.bytes = sizeof root;
        memcpy(root.library_version, "made", 5);
        root.page = static_cast<const struct page_layout *>(pointer_to(kPageLayout));
        root.heap = static_cast<const struct heap_layout *>(pointer_to(kHeapLayout));
        root.guarded = static_cast<const struct guarded_layout *>(pointer_to(kGuardedLayout));
        root.profile = static_cast<const struct profile_layout *>(pointer_to(kProfileLayout));
        root.control_place = root.system_calls = pointer_to(kState + 160);
        root.trace_lanes = root.trace_stack_caches = pointer_to(kState + 160);
        root.page_bytes = sizeof page;
        root.heap_bytes = sizeof heap;
        root.guarded_bytes = sizeof guarded;
        root.profile_bytes = sizeof profile;
        root.system_call_kinds = 2;
        root.control_owner = at(0, 4);
        root.control_path = at(8, 16);
    }

    // Two slabs, a packed slab, a large block, a free run and a guarded block.
    void fill_heap()
    {
        put_slab(0, kData, 0, 64, 63, 10);
        memset(&segments[2].bytes[kHeaderBytes + 8], 255, 8); // the first seven slots are live
        put_slab(1, kData + kPage, 1, 256, 15, 3);
        put_slab(2, kData + 16 * kPage, kPackedClass, 8, 0, 5);
        put_pages(3, kData + 2 * kPage, kTagLarge, 2);
        put_pages(4, kData + 4 * kPage, kTagFree, 3);
        put_word(kData + 64, kData + 2 * kPage); // a block leads to the large one
        put_word(kState + 64, kHeap);
        put_word(kArena, kArena + 16);
        put_word(kArena + 8, 1);
        put_word(kArena + 16, kData);
        put_word(kArena + 24, kRegions);
        put_word(kPool, kData + 64 * kPage);
        put_word(kPool + 8, kPage);
        put_word(kPool + 16, 2 * kPage);
        put_word(kPool + 24, kPoolSlots);
        put_word(kPoolSlots + 8, kData + 65 * kPage);
        put_word(kPoolSlots + 24, 100);
        put_value<uint32_t>(kPoolSlots + 64, 2);
    }
    void write_descriptions()
    {
        put_value(kLibrary, root);
        put_value(kPageLayout, page);
        put_value(kHeapLayout, heap);
        put_value(kGuardedLayout, guarded);
        put_value(kProfileLayout, profile);
    }
};

} // namespace core_kit
