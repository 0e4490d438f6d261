// What writer and reader of a trace in columns expect of the next event, from those before. Both
// bring it forward by the same events, so it is part of the format: docs/TRACE-FORMAT.md. All
// tables but that of threads are of fixed size, whatever is in the trace; where one is too small,
// expectations fail, and nothing else.
//
// After value prediction compression: Burtscher and others, "The VPC Trace-Compression
// Algorithms", IEEE Transactions on Computers 54 (11), 2005. Addresses are expected as a heap of
// slabs hands them out: of the slab that served the thread's last block of this size class the
// block freed last, else the one behind the highest.
//
// A block that is freed is looked for among those that are live: each has a serial, which counts
// allocations, and a rank, which counts those of its site, the stack that made it. Of objects of
// several blocks the first one that is freed may be any; the others have serials near to its own.
#ifndef CAIRN_TOOLS_TRACE_MODEL_H
#define CAIRN_TOOLS_TRACE_MODEL_H

#include "trace_reader.h"

// What a byte of "what" says: the operation, and of an allocation two flags.
enum {
    WHAT_OPERATION = 7,
    WHAT_ZEROED = 1 << 3,
    WHAT_ALIGNED = 1 << 4,
    WHAT_MOST = 31,
};

// The event's way to say a value: as the model expects it in one of some ways, or in full.
enum { KIND_GUESSES = 3, SIZE_GUESSES = 3, NEW_GUESSES = 3 };

// Which block is freed or resized. The wanted site is that of the block of the last event after the
// same four kinds. Version 2 has the ways before WAY_RANK_STEP alone.
enum old_way {
    WAY_STEP,           // and those up to WAY_FREED_NEXT: see step_base
    WAY_FREED_NEXT = 5, // what was freed after the last one the last time
    WAY_AGE,            // as many allocations ago as at this stack the last time
    WAY_NEWEST,
    WAY_AGAIN,
    WAY_RANK_STEP,   // of the wanted site, as many ranks from the last as after the same four kinds
    WAY_FREER_BELOW, // the nearest older than the last one of a site whose blocks this stack frees
    WAY_FREER_ABOVE, // the nearest younger one
    WAY_RANK_ABOVE,  // of the wanted site the next that is live
    WAY_RANK_BELOW,  // the one before
    WAY_SITE_BELOW,  // of the wanted site the nearest older than the last but one
    OLD_WAYS,
    OLD_WAYS_BEFORE = WAY_RANK_STEP,
};
// Version 3 has these, bit by bit: the others would cost it more than they save.
enum {
    WAYS_TAKEN = 1 << (WAY_STEP + 1) | 1 << (WAY_STEP + 3) | 1 << (WAY_STEP + 4) | 1 << WAY_NEWEST |
                 1 << WAY_RANK_STEP | 1 << WAY_FREER_BELOW | 1 << WAY_FREER_ABOVE |
                 1 << WAY_RANK_ABOVE | 1 << WAY_RANK_BELOW | 1 << WAY_SITE_BELOW,
};

struct trace_model;

struct model_thread {
    uint64_t time_ns;
    uint64_t size;             // the last
    uint64_t freed;            // the address last freed or resized
    uint64_t freed_serials[3]; // of the last of these whose serial is known, the latest first
    uint64_t step;             // from the second of them to the first
    uint32_t kinds[4];         // hashes of the last one, two, four and eight kinds
    uint32_t recent[8];        // of kinds
    uint32_t at;
    uint32_t id; // the kernel's number, of a reader; known when it is named
    bool named;
};

// `version`: of the format, 2 or 3.
struct trace_model *model_new(uint64_t start_ns, unsigned version);
void model_free(struct trace_model *model);

// Valid until the next call.
struct model_thread *model_thread(struct trace_model *model, uint32_t number);

// Kinds are WHAT | stack << 8.
uint64_t model_kind(struct trace_model *model, const struct model_thread *thread, unsigned guess);
void model_kind_was(struct trace_model *model, struct model_thread *thread, uint64_t kind);

uint64_t model_size(struct trace_model *model, const struct model_thread *thread, uint32_t stack,
                    unsigned guess);
void model_size_was(struct trace_model *model, struct model_thread *thread, uint32_t stack,
                    uint64_t size);

// Where the block of an allocation is. It is counted from model_near where no guess is right.
uint64_t model_new_address(struct trace_model *model, uint32_t thread, uint64_t size,
                           unsigned guess);
uint64_t model_near(struct trace_model *model, uint32_t thread, uint64_t size);
void model_allocated(struct trace_model *model, uint32_t thread, uint32_t stack, uint64_t size,
                     uint64_t address);

// The block that is freed or resized; 0: none is expected.
uint64_t model_old_address(const struct trace_model *model, const struct model_thread *thread,
                           uint32_t stack, enum old_way way);
// 1 + the way that was right last after the same two kinds, 0: none was. The caller keeps it.
uint8_t *model_right_way(struct trace_model *model, const struct model_thread *thread);
// Where no way is right. A rank step counts blocks of the wanted site, from the last of them that
// was freed. False: the block is not one of these.
uint64_t model_by_rank_step(const struct trace_model *model, const struct model_thread *thread,
                            uint64_t step);
bool model_rank_step(const struct trace_model *model, const struct model_thread *thread,
                     uint64_t address, uint64_t *step);
// A step counts allocations, from that of the block that the stack freed before. False: the block
// is not known.
uint64_t model_by_step(const struct trace_model *model, uint32_t stack, uint64_t step);
bool model_step(const struct trace_model *model, uint32_t stack, uint64_t address, uint64_t *step);
void model_touched(struct trace_model *model, struct model_thread *thread, uint32_t number,
                   uint32_t stack, uint64_t address, bool freed);

#endif
