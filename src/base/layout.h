/* The description of the library's data for readers outside the process: addresses of roots,
 * offsets and sizes of fields, values of states. Each layer describes its own part in a constant
 * (page/inspect.c, heap/heap.c, watch/library_layout.c), by offsetof and sizeof of the
 * structs themselves, so the description is always right. The library itself does not read it.
 *
 * A reader finds it by an ELF note of the library, or of the program that it is linked into. The
 * note has the name "Cairn" and the type LAYOUT_NOTE. The content of the note is a signed number of
 * 8 bytes: the distance from the content itself to the struct library_layout. The note is in the
 * first page of the file, which the kernel writes into core files. The descriptions are relocated
 * at the start of the process, so core files have relocated ones, too.
 *
 * LAYOUT_VERSION increases with each change of these structs and of the meaning of a described
 * field. tools/look reads the description; it knows one version.
 */
#ifndef CAIRN_BASE_LAYOUT_H
#define CAIRN_BASE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum { LAYOUT_VERSION = 18, LAYOUT_NOTE = 1 };

/* The bit of a word of `heap_kept` that is not part of the address: the span has grown old. */
enum { LAYOUT_KEPT_AGED = 1 };
#define LAYOUT_NOTE_NAME "Cairn"
#define LAYOUT_MAGIC                                                                               \
    "\x7f"                                                                                         \
    "cairn-layout\r\n" /* 16 bytes with the final 0 */

/* A field: its offset in its struct and its size, in bytes. */
struct layout_field {
    uint16_t offset, bytes;
};
#define layout_field_of(type, name) {offsetof(type, name), sizeof(((type *)0)->name)}

/* The page layer's part. Addresses are addresses in the process. */
struct page_layout {
    const void *page_map;           /* struct page_map */
    const void *arenas;             /* array of pointers to struct arena */
    const void *arena_count;        /* size_t */
    const void *state;              /* struct page_state */
    const void *shards;             /* array of struct page_shard */
    const void *meta_bytes;         /* size_t */
    const void *kept_outside_pages; /* size_t */
    uint32_t page_shift, address_bits, region_shift, region_count;
    uint32_t map_root, leaf_entries; /* offsets of arrays of uint64_t */
    uint32_t span_bytes, arena_bytes, arena_limit, shard_bytes, shard_limit;
    uint8_t tag_free, tag_moving, tag_kept, tag_large, tag_huge, tag_run, tag_run_huge;
    uint8_t tag_guarded, tag_revoked, tag_slab; /* tag_slab: of class 0 */
    uint8_t unused[2];
    struct layout_field span_owner, span_base, span_fresh_slot, span_size_bytes, span_pages;
    struct layout_field span_dirty_pages, span_tag, span_capacity;
    struct layout_field span_next; /* kept runs in a heap's run cache: the next one of the place */
    struct layout_field span_side_units; /* size of the cold area in units of 64 bytes */
    struct layout_field arena_base, arena_pages, arena_frontier, arena_hole_pages;
    struct layout_field arena_begun; /* 0: no page is resident that was not handed out */
    struct layout_field shard_free_pages, shard_dirty_pages;
    struct layout_field state_committed_pages, state_purged_pages, state_purges;
    struct layout_field state_huge_pages, state_huge_count, state_reserved_pages;
};

/* The heap's part. */
struct heap_layout {
    const void *size_classes;                            /* array of struct slab_shape */
    const void *all_heaps;                               /* struct heap * */
    const void *heap_generation;                         /* uint32_t */
    uint32_t hardening;                                  /* 0 none, 1 light, 2 full */
    uint32_t class_count, packed_class, zero_size_class; /* UINT32_MAX: no such slabs */
    uint32_t size_class_bytes, heap_bytes, cold_area_bytes;
    uint32_t links_at; /* offset of the link of slot 0 in a cold area */
    uint32_t packed_bytes, packed_words, packed_pages; /* sizes in a packed slab */
    uint32_t packed_words_at; /* offset of its array of uint64_t in a cold area */
    uint32_t kept_places;     /* places in a heap's run cache */
    uint32_t owner_tags;      /* low bits of an owner word that are not part of the address */
    uint32_t state_active, state_orphan;  /* states of a heap */
    uint32_t state_busy;                  /* held by another thread */
    uint32_t kept_pages;                  /* the most pages of all kept runs of a heap */
    uint32_t state_private, state_unused; /* states of a private heap */
    uint32_t use_mask, use_aside;         /* use word of a slab: bits of the use, and one use */
    uint8_t link_live, link_profiled, link_end, link_remote, link_quarantined;
    uint8_t link_borrowed, unused[2]; /* link_live: no borrowed blocks */
    struct layout_field class_size_bytes, class_pages, class_capacity;
    struct layout_field cold_use; /* at a cold area's end */
    struct layout_field heap_next, heap_state, heap_generation_field, heap_kept;
    struct layout_field heap_mailboxes; /* array of pointers */
};

/* The part of the guarded blocks of option `guard`. */
struct guarded_layout {
    const void *pool; /* struct guarded_pool */
    uint32_t slot_count, slot_bytes, state_live;
    struct layout_field pool_start, pool_page_bytes, pool_slot_bytes, pool_slots;
    struct layout_field slot_state, slot_turn;
};

/* The profiler's part: src/watch/profile_table.h describes its tables. */
struct profile_layout {
    const void *state; /* struct profile_state */
    uint32_t site_count, block_count, frame_count, depth;
    uint32_t site_bytes, block_bytes, weight_shift;
    uint32_t sites_at, blocks_at, frames_at, stacks_lost_at, blocks_lost_at; /* offsets in table */
    uint32_t modules_at, modules_bytes, is_forked_at;
    struct layout_field state_table, state_interval_bytes;
    struct layout_field site_ready, site_first_frame;
    struct layout_field block_address, block_site, block_thread, block_asked_bytes, block_objects;
    struct layout_field block_time_ms;
};

/* The root of the description. */
struct library_layout {
    char magic[16];
    uint32_t version, bytes; /* size of this struct */
    char library_version[16];
    const struct page_layout *page;
    const struct heap_layout *heap;
    const struct guarded_layout *guarded;
    const struct profile_layout *profile;
    const void *control_place;      /* struct control_place */
    const void *system_calls;       /* array of uint64_t, by enum os_call */
    const void *trace_lanes;        /* has addresses of blocks that are no references */
    const void *trace_stack_caches; /* void *: has copies of stacks, which are no references */
    uint32_t page_bytes, heap_bytes, guarded_bytes, profile_bytes; /* sizes of the four parts */
    uint32_t system_call_kinds;
    struct layout_field control_owner, control_path;
    uint32_t trace_lanes_bytes, trace_stack_caches_bytes;
};

extern const struct page_layout page_layout;
extern const struct heap_layout heap_layout;
extern const struct library_layout library_layout;

#endif
