/* The heap layer's part of the description for readers outside: see base/layout.h. No code. */
#include "base/layout.h"
#include "heap/packed_words.h"
#include "heap/thread_heap.h"

extern const struct heap_layout heap_layout __attribute__((visibility("hidden")));

const struct heap_layout heap_layout = {
    .size_classes = size_classes,
    .all_heaps = &all_heaps,
    .heap_generation = &heap_generation,
    .hardening = CAIRN_HARDENED,
    .class_count = CLASS_COUNT,
    .packed_class = config_packed ? (uint32_t)PACKED_CLASS : UINT32_MAX,
    .void_class = config_void_blocks ? (uint32_t)VOID_CLASS : UINT32_MAX,
    .size_class_bytes = sizeof(struct size_class),
    .heap_bytes = sizeof(struct heap),
    .remote_bytes = sizeof(struct remote),
    .links_at = LINKS_AT,
    .packed_bytes = PACKED_BYTES,
    .packed_words = PACKED_WORDS,
    .packed_pages = PACKED_PAGES,
    .packed_words_at = LINKS_AT + 1,
    .kept_places = RUN_CACHE_PLACES,
    .owner_tags = (uint32_t)~OWNER_HEAP_MASK,
    .state_active = HEAP_ACTIVE,
    .state_orphan = HEAP_ORPHAN,
    .state_busy = HEAP_BUSY,
    .state_program = HEAP_PROGRAM,
    .state_unused = HEAP_UNUSED,
    .use_mask = (1u << USE_BITS) - 1,
    .use_aside = SLAB_ASIDE,
    .link_live = LINK_LIVE,
    .link_end = LINK_END,
    .link_remote = LINK_REMOTE,
    .link_profiled = LINK_PROFILED,
    .link_quarantined = config_quarantine ? LINK_QUARANTINED : LINK_LIVE,
    .class_size_bytes = layout_field_of(struct size_class, size_bytes),
    .class_pages = layout_field_of(struct size_class, pages),
    .class_capacity = layout_field_of(struct size_class, capacity),
    .remote_generation = layout_field_of(struct remote, generation),
    .remote_words = layout_field_of(struct remote, words),
    .remote_use = layout_field_of(struct remote, use),
    .heap_next = layout_field_of(struct heap, next),
    .heap_state = layout_field_of(struct heap, state),
    .heap_generation_field = layout_field_of(struct heap, generation),
    .heap_mailboxes = layout_field_of(struct heap, mailboxes),
    .heap_kept = layout_field_of(struct heap, runs.places),
};
