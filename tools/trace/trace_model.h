// Predicts the next event of a trace in columns from the previous events. Writer and reader update
// it with the same events, so it is part of the format: docs/dev/TRACE-FORMAT.md. All tables
// except that of threads have a fixed size. A table that is too small only makes predictions fail.
//
// After value prediction compression: Burtscher and others, "The VPC Trace-Compression Algorithms",
// IEEE Transactions on Computers 54 (11), 2005. Addresses are predicted as a heap of slabs hands
// them out: in the slab that served the thread's last block of the size class, the block freed
// last, else the block after the highest one.
//
// A freed block is searched among the live ones. Each block has a serial, which counts allocations,
// and a rank, which counts the allocations of its site, the stack that made it. In objects of
// several blocks any block may be freed first; the others have serials near to it.
#ifndef CAIRN_TOOLS_TRACE_MODEL_H
#define CAIRN_TOOLS_TRACE_MODEL_H

#include "trace_reader.h"

// A byte of COLUMN_WHAT: the operation, and two flags of an allocation.
enum {
    WHAT_OPERATION = 7,
    WHAT_ZEROED = 1 << 3,
    WHAT_ALIGNED = 1 << 4,
    WHAT_MOST = 31,
};

// Numbers of predictions of a value; after them the value is in its column.
enum { KIND_GUESSES = 3, SIZE_GUESSES = 3, NEW_GUESSES = 3 };

// The ways to predict the block that is freed or resized. The wanted site is the site of the block
// of the last event after the same four kinds. Version 2 has only the ways before WAY_RANK_STEP.
enum old_way {
    WAY_STEP,           // the ways up to WAY_FREED_NEXT count from step_base()
    WAY_FREED_NEXT = 5, // the block freed after the thread's last one when that was freed before
    WAY_AGE,            // as many allocations ago as at this stack the last time
    WAY_NEWEST,
    WAY_AGAIN,
    WAY_RANK_STEP,   // a block of the wanted site, by the rank step after the same four kinds
    WAY_FREER_BELOW, // the next older block of a site whose blocks this stack frees
    WAY_FREER_ABOVE, // the next younger block of such a site
    WAY_RANK_ABOVE,  // the live block of the wanted site with the next higher rank
    WAY_RANK_BELOW,  // the live block of the wanted site with the next lower rank
    WAY_SITE_BELOW,  // the next block of the wanted site older than the last but one
    OLD_WAYS,
    OLD_WAYS_BEFORE = WAY_RANK_STEP,
};
// The ways of version 3, one bit each: the others would cost more than they save.
enum {
    WAYS_TAKEN = 1 << (WAY_STEP + 1) | 1 << (WAY_STEP + 3) | 1 << (WAY_STEP + 4) | 1 << WAY_NEWEST |
                 1 << WAY_RANK_STEP | 1 << WAY_FREER_BELOW | 1 << WAY_FREER_ABOVE |
                 1 << WAY_RANK_ABOVE | 1 << WAY_RANK_BELOW | 1 << WAY_SITE_BELOW,
};

struct trace_model;

struct model_thread {
    uint64_t time_ns;
    uint64_t size;             // size of the last allocation or resize
    uint64_t freed;            // address last freed or resized
    uint64_t freed_serials[3]; // serials of the last freed or resized blocks, latest first
    uint64_t step;             // from the second serial to the first
    uint32_t kinds[4];         // hashes of the last one, two, four and eight kinds
    uint32_t recent[8];        // hashes of the last kinds
    uint32_t at;
    uint32_t id; // kernel's number, in a reader; valid when named
    bool named;
};

// Creates a model for version 2 or 3 of the format.
struct trace_model *model_new(uint64_t start_ns, unsigned version);
void model_free(struct trace_model *model);

// Returns: the state of a thread, valid until the next call.
struct model_thread *model_thread(struct trace_model *model, uint32_t number);

// Predicts a kind: WHAT | stack << 8.
uint64_t model_kind(struct trace_model *model, const struct model_thread *thread, unsigned guess);
void model_kind_was(struct trace_model *model, struct model_thread *thread, uint64_t kind);

uint64_t model_size(struct trace_model *model, const struct model_thread *thread, uint32_t stack,
                    unsigned guess);
void model_size_was(struct trace_model *model, struct model_thread *thread, uint32_t stack,
                    uint64_t size);

// Predicts the address of an allocated block. If no guess is right, the address is coded relative
// to model_near().
uint64_t model_new_address(struct trace_model *model, uint32_t thread, uint64_t size,
                           unsigned guess);
uint64_t model_near(struct trace_model *model, uint32_t thread, uint64_t size);
void model_allocated(struct trace_model *model, uint32_t thread, uint32_t stack, uint64_t size,
                     uint64_t address);

// Predicts the block that is freed or resized. Returns: 0 when this way predicts none.
uint64_t model_old_address(const struct trace_model *model, const struct model_thread *thread,
                           uint32_t stack, enum old_way way);
// Returns: the place of 1 + the way that was right last after the same two kinds, 0: none. The
// caller updates it.
uint8_t *model_right_way(struct trace_model *model, const struct model_thread *thread);
// The block at a rank step, used when no way is right. A rank step counts blocks of the wanted
// site, from the one that was freed last.
uint64_t model_by_rank_step(const struct trace_model *model, const struct model_thread *thread,
                            uint64_t step);
// Computes the rank step of a block. Returns: false when the block is not one of the wanted site.
bool model_rank_step(const struct trace_model *model, const struct model_thread *thread,
                     uint64_t address, uint64_t *step);
// The block at a step, which counts allocations from the block that the stack freed last.
uint64_t model_by_step(const struct trace_model *model, uint32_t stack, uint64_t step);
// Computes the step of a block. Returns: false when the block is not known.
bool model_step(const struct trace_model *model, uint32_t stack, uint64_t address, uint64_t *step);
void model_touched(struct trace_model *model, struct model_thread *thread, uint32_t number,
                   uint32_t stack, uint64_t address, bool freed);

#endif
