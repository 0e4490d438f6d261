/* What a reader outside the process has to know of the library's data: addresses of the roots,
 * offsets and sizes of fields, values of states. Each layer describes its own part in a constant
 * (page_layout.c, heap_layout.c, watch/library_layout.c), by offsetof and sizeof of the structs
 * themselves, so the description cannot drift; nothing in the library reads it.
 *
 * Found by an ELF note of the library or of the program that it is linked into: name "Cairn", type
 * LAYOUT_NOTE, contents: the signed distance in 8 bytes from where it stands itself to the struct
 * library_layout. The note lies in the first page of the file, which the kernel writes into core
 * files; the descriptions are relocated at the start, and so in core files, too.
 *
 * LAYOUT_VERSION grows with every change of these structs, and of what a field that is described
 * here means. tools/look reads it; it knows one version.
 */
#ifndef CAIRN_BASE_LAYOUT_H
#define CAIRN_BASE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum { LAYOUT_VERSION = 8, LAYOUT_NOTE = 1 };

/* Bits of a word of `heap_kept` that are no address: has grown old; and then no span is kept. */
enum { LAYOUT_KEPT_AGED = 1, LAYOUT_KEPT_NONE = 2 };
#define LAYOUT_NOTE_NAME "Cairn"
#define LAYOUT_MAGIC                                                                               \
    "\x7f"                                                                                         \
    "cairn-layout\r\n" /* 16 bytes with the final 0 */

/* A field: where it lies in its struct, in bytes, and how many it has. */
struct layout_field {
    uint16_t offset, bytes;
};
#define layout_field_of(type, name) {offsetof(type, name), sizeof(((type *)0)->name)}

/* Addresses are those of the process. */
struct page_layout {
    const void *page_map;           /* struct page_map */
    const void *arenas;             /* array of pointers to struct arena */
    const void *arena_count;        /* size_t */
    const void *state;              /* struct page_state */
    const void *meta_bytes;         /* size_t */
    const void *kept_outside_pages; /* size_t */
    uint32_t page_shift, address_bits, region_shift, region_count;
    uint32_t map_root, leaf_entries; /* offsets, of arrays of uint64_t */
    uint32_t span_bytes, arena_bytes, arena_limit;
    uint8_t tag_free, tag_moving, tag_kept, tag_large, tag_huge, tag_run, tag_run_huge;
    uint8_t tag_guarded, tag_trapped, tag_slab; /* a slab of class 0; and up */
    uint8_t unused[2];
    struct layout_field span_owner, span_base, span_limit, span_size_bytes, span_pages;
    struct layout_field span_dirty_pages, span_claimed, span_tag, span_capacity;
    struct layout_field span_cold_64; /* of a slab: of the cold area behind it, in 64 bytes */
    struct layout_field arena_base, arena_pages, arena_frontier, arena_hole_pages;
    struct layout_field state_committed_pages, state_free_pages, state_dirty_pages;
    struct layout_field state_purged_pages, state_purges, state_huge_pages, state_huge_count;
    struct layout_field state_reserved_pages;
};

struct heap_layout {
    const void *size_classes;                       /* array of struct size_class */
    const void *all_heaps;                          /* struct heap * */
    const void *heap_generation;                    /* uint32_t */
    uint32_t hardening;                             /* 0 none, 1 light, 2 full */
    uint32_t class_count, packed_class, void_class; /* no such slabs: above both */
    uint32_t size_class_bytes, heap_bytes, remote_bytes;
    uint32_t links_at;                                 /* in a cold area: the link of slot 0 */
    uint32_t packed_bytes, packed_words, packed_pages; /* of a packed slab */
    uint32_t packed_words_at;                          /* in its cold area: array of uint64_t */
    uint32_t kept_places;                              /* of a heap's run cache */
    uint32_t owner_tags;                               /* low bits of an owner word */
    uint32_t state_active, state_orphan;               /* of a heap */
    uint32_t state_busy, state_posted;                 /* and borrowed */
    uint32_t state_program, state_unused;              /* of a heap of the program's */
    uint32_t use_mask, use_aside;                      /* of a slab's use word */
    uint8_t link_live, link_profiled, link_end, link_remote, link_quarantined, unused[3];
    struct layout_field class_size_bytes, class_pages, class_capacity;
    struct layout_field own_claimed_at;                              /* in a cold area */
    struct layout_field remote_generation, remote_words, remote_use; /* at its end */
    struct layout_field heap_next, heap_state, heap_generation_field, heap_kept;
    struct layout_field heap_mailboxes; /* array of pointers */
};

struct guarded_layout {
    const void *pool; /* struct guarded_pool */
    uint32_t slot_count, slot_bytes, state_live;
    struct layout_field pool_start, pool_page_bytes, pool_slot_bytes, pool_slots;
    struct layout_field slot_state, slot_turn;
};

/* The profiler's tables: src/watch/profile_table.h says what they hold. */
struct profile_layout {
    const void *state; /* struct profile_state */
    uint32_t site_count, block_count, frame_count, depth;
    uint32_t site_bytes, block_bytes, weight_shift;
    uint32_t sites_at, blocks_at, frames_at, stacks_lost_at, blocks_lost_at; /* in the table */
    struct layout_field state_table, state_interval_bytes;
    struct layout_field site_ready, site_first_frame;
    struct layout_field block_address, block_site, block_thread, block_asked_bytes, block_objects;
    struct layout_field block_time_ms;
};

struct library_layout {
    char magic[16];
    uint32_t version, bytes; /* of this struct */
    char library_version[16];
    const struct page_layout *page;
    const struct heap_layout *heap;
    const struct guarded_layout *guarded;
    const struct profile_layout *profile;
    const void *control_place; /* struct control_place */
    const void *system_calls;  /* array of uint64_t, by enum os_call */
    uint32_t page_bytes, heap_bytes, guarded_bytes, profile_bytes; /* of those structs */
    uint32_t system_call_kinds;
    struct layout_field control_owner, control_path;
    uint32_t unused;
};

extern const struct page_layout page_layout;
extern const struct heap_layout heap_layout;
extern const struct library_layout library_layout;

#endif
