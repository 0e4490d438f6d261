/* The root of the description for readers outside of the process, and the ELF note that leads to
 * it: see base/layout.h. No code. */
#include "base/layout.h"
#include "cairn/api.h"
#include "os/memory.h"
#include "watch/control_socket.h"
#include "watch/guards.h"
#include "watch/profile_table.h"
#include "watch/trace_lanes.h"
#include "watch/trace_stacks.h"

extern const struct library_layout library_layout __attribute__((visibility("hidden")));

static const struct guarded_layout guarded_layout = {
    .pool = &guarded_pool,
    .slot_count = SLOT_COUNT,
    .slot_bytes = sizeof(struct guarded_slot),
    .state_live = SLOT_LIVE,
    .pool_start = layout_field_of(struct guarded_pool, start),
    .pool_page_bytes = layout_field_of(struct guarded_pool, page_bytes),
    .pool_slot_bytes = layout_field_of(struct guarded_pool, slot_bytes),
    .pool_slots = layout_field_of(struct guarded_pool, slots),
    .slot_state = layout_field_of(struct guarded_slot, state),
    .slot_turn = layout_field_of(struct guarded_slot, turn),
};

static const struct profile_layout profile_layout = {
    .state = &profile_state,
    .site_count = PROFILE_SITES,
    .block_count = PROFILE_BLOCKS,
    .frame_count = PROFILE_FRAMES,
    .depth = PROFILE_DEPTH,
    .site_bytes = sizeof(struct profile_site),
    .block_bytes = sizeof(struct profile_block),
    .weight_shift = PROFILE_WEIGHT_SHIFT,
    .sites_at = offsetof(struct profile_table, sites),
    .blocks_at = offsetof(struct profile_table, blocks),
    .frames_at = offsetof(struct profile_table, frames),
    .stacks_lost_at = offsetof(struct profile_table, stacks_lost),
    .blocks_lost_at = offsetof(struct profile_table, blocks_lost),
    .modules_at = offsetof(struct profile_table, modules),
    .modules_bytes = sizeof(struct profile_modules),
    .is_forked_at = offsetof(struct profile_table, is_forked),
    .state_table = layout_field_of(struct profile_state, table),
    .state_interval_bytes = layout_field_of(struct profile_state, interval_bytes),
    .site_ready = layout_field_of(struct profile_site, ready),
    .site_first_frame = layout_field_of(struct profile_site, first_frame),
    .block_address = layout_field_of(struct profile_block, block),
    .block_site = layout_field_of(struct profile_block, site),
    .block_thread = layout_field_of(struct profile_block, thread),
    .block_asked_bytes = layout_field_of(struct profile_block, asked_bytes),
    .block_objects = layout_field_of(struct profile_block, objects),
    .block_time_ms = layout_field_of(struct profile_block, time_ms),
};

__attribute__((used)) const struct library_layout library_layout = {
    .magic = LAYOUT_MAGIC,
    .version = LAYOUT_VERSION,
    .bytes = sizeof(struct library_layout),
    .library_version = CAIRN_VERSION,
    .page = &page_layout,
    .heap = &heap_layout,
    .guarded = &guarded_layout,
    .profile = &profile_layout,
    .control_place = &control_place,
    .control_owner = layout_field_of(struct control_place, owner),
    .control_path = layout_field_of(struct control_place, path),
    .system_calls = os_calls,
    .system_call_kinds = OS_CALL_KINDS,
    .trace_lanes = trace_lanes,
    .trace_lanes_bytes = sizeof trace_lanes,
    .trace_stack_caches = &trace_stack_caches,
    .trace_stack_caches_bytes = TRACE_STACK_CACHES * sizeof(struct trace_stack_cache),
    .page_bytes = sizeof(struct page_layout),
    .heap_bytes = sizeof(struct heap_layout),
    .guarded_bytes = sizeof(struct guarded_layout),
    .profile_bytes = sizeof(struct profile_layout),
};
static_check(sizeof LAYOUT_MAGIC == sizeof library_layout.magic, "with its final 0");

/* The linker fills in the distance between the symbols, so the note needs no relocation. */
static_check(LAYOUT_NOTE == 1 && sizeof LAYOUT_NOTE_NAME == 6, "as it stands here");
__asm__(".pushsection .note.cairn, \"a\", %note\n"
        ".balign 4\n"
        ".long 6, 8, 1\n"
        ".asciz \"" LAYOUT_NOTE_NAME "\"\n"
        ".balign 4\n"
        ".quad library_layout - .\n"
        ".popsection\n");
