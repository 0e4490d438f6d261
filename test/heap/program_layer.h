// What the tests of first-class heaps and their large blocks share.
#pragma once

#include "heap/heap_layer.h"

extern "C" {
#include "heap/program_large.h"
#include "heap/program_limit.h"
#include "heap/program_notes.h"
}

namespace heap_layer
{

inline program_stats stats_of(struct program_heap *program)
{
    program_stats stats;
    program_read_stats(program, &stats);
    return stats;
}

// One heap without a limit.
class ProgramHeapOfTest : public heap_layer::OwnHeap
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        const struct program_options none = {};
        program_ = program_make(&none);
        ASSERT_NE(program_, nullptr);
    }
    void TearDown() override
    {
        program_end(program_);
        OwnHeap::TearDown();
    }
    size_t held() { return stats_of(program_).held_bytes; }
    void *take(size_t size)
    {
        struct span *span = program_allocate_large(program_, size, PAGE_BYTES);
        return span ? span->base : nullptr;
    }

    struct program_heap *program_ = nullptr;
};

} // namespace heap_layer
