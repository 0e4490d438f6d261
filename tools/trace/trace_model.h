// What writer and reader of a trace in columns expect of the next event, from those before. Both
// bring it forward by the same events, so it is part of the format: docs/TRACE-FORMAT.md. All
// tables but that of threads are of fixed size, whatever is in the trace; where one is too small,
// expectations fail, and nothing else.
//
// After value prediction compression: Burtscher and others, "The VPC Trace-Compression
// Algorithms", IEEE Transactions on Computers 54 (11), 2005. Addresses are expected as a heap of
// slabs hands them out: of the slab that served the thread's last block of this size class the
// block freed last, else the one behind the highest.
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
enum { KIND_GUESSES = 3, SIZE_GUESSES = 3, NEW_GUESSES = 3, OLD_GUESSES = 9 };

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

struct trace_model *model_new(uint64_t start_ns);
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
void model_allocated(struct trace_model *model, uint32_t thread, uint64_t size, uint64_t address);

// Which block is freed or resized. A step counts allocations, from that of the block that the
// stack freed before. False: the block is not known.
uint64_t model_old_address(struct trace_model *model, const struct model_thread *thread,
                           uint32_t stack, unsigned guess);
uint64_t model_by_step(const struct trace_model *model, uint32_t stack, uint64_t step);
bool model_step(const struct trace_model *model, uint32_t stack, uint64_t address, uint64_t *step);
void model_touched(struct trace_model *model, struct model_thread *thread, uint32_t number,
                   uint32_t stack, uint64_t address, bool freed);

#endif
