// What a first-class heap holds.

#include <vector>

#include "heap/program_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::span_of;

using heap_layer::stats_of;

class ProgramState : public heap_layer::ProgramHeapOfTest
{
};

TEST_F(ProgramState, SlabsAreListedWhileTheyAreHeld)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 1000; i++)
        blocks.push_back(program_allocate(program_, 500, 1));
    size_t bytes = 0;
    for (struct span *slab = program_->slabs; slab; slab = program_next_slab(slab)) {
        EXPECT_EQ(span_program(slab), program_);
        bytes += program_slab_bytes(slab_class(slab));
    }
    EXPECT_EQ(bytes, program_->slab_bytes);
    EXPECT_EQ(bytes, held());
    const size_t peak = stats_of(program_).peak_bytes;
    EXPECT_GE(peak, bytes);
    for (void *block : blocks)
        free_fast(block);
    program_trim(program_);
    EXPECT_EQ(program_->slabs, nullptr);
    EXPECT_EQ(program_->leaving, nullptr) << "they went to the pages";
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(stats_of(program_).peak_bytes, peak);
}

TEST_F(ProgramState, TheBlockLeadsToItsHeap)
{
    void *block = program_allocate(program_, 40, 1);
    void *large = program_allocate(program_, 100 * kKiB, 1);
    void *other = allocate(40);
    EXPECT_EQ(span_program(span_of(block)), program_);
    EXPECT_EQ(span_program(span_of(large)), program_);
    EXPECT_EQ(span_program(span_of(other)), nullptr);
    free_fast(block);
    free_fast(large);
    free_fast(other);
}

} // namespace
