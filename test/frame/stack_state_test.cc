// Ownership of a stack: each operation by another thread, or after the end, ends the process with a
// message.

#include "cairn/stack.h"
#include "frame/frame_kit.h"
#include "frame/stack_kit.h"

namespace stack_state_test
{

using namespace frame_kit;
using namespace stack_kit;

// Every operation that a thread without ownership must not call: all but the pop of a push that
// failed.
TEST(StackStateDeathTest, WrongThreadInEveryOperation)
{
    Stack owned = make();
    cairn_stack *stack = owned.get();
    cairn_mark mark = cairn_stack_push(stack);
    void *block = cairn_stack_alloc(stack, 8, 8);
    cairn_allocator allocator = cairn_stack_allocator(stack);
    cairn_stack_stats stats;
    std::string line = "stack \"stack\": used by a thread that does not own it";
    volatile size_t align = 8; // volatile: not the inline path
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_alloc(stack, 8, 8); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_alloc(stack, 8, align); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_push(stack); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_pop(stack, mark); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_stack_realloc(stack, block, 8, 16, 8)); }),
                      line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_seal(stack); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_unseal(stack); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_trim(stack, 0); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_reset(stack); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_delete(stack); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_stack_read_stats(stack, &stats); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_allocator_alloc(allocator, 8, 8)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_allocator_resize(allocator, block, 8, 16); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_allocator_free(allocator, block, 8); }), line);
}

// The stack is deleted in the parent, where no other stack is made that could take the descriptor.
TEST(StackStateDeathTest, UseAfterDeleteInEveryOperation)
{
    cairn_stack_options options = {};
    options.name = "gone";
    cairn_stack *stack = cairn_stack_new(&options);
    cairn_stack *other = cairn_stack_new(nullptr);
    cairn_mark mark = cairn_stack_push(stack);
    void *block = cairn_stack_alloc(stack, 8, 8);
    cairn_allocator allocator = cairn_stack_allocator(stack);
    cairn_stack_delete(other); // the list of free descriptors has two entries
    cairn_stack_delete(stack);
    cairn_stack_stats stats;
    std::string line = "stack \"gone\": used after cairn_stack_delete";
    volatile size_t align = 8;
    EXPECT_DEATH_LINE(cairn_stack_alloc(stack, 8, 8), line);
    EXPECT_DEATH_LINE(cairn_stack_alloc(stack, 8, align), line);
    EXPECT_DEATH_LINE(cairn_stack_push(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_pop(stack, mark), line);
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack, block, 8, 16, 8)), line);
    EXPECT_DEATH_LINE(ignore(cairn_stack_realloc(stack, nullptr, 0, 16, 8)), line);
    EXPECT_DEATH_LINE(cairn_stack_seal(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_unseal(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_trim(stack, 0), line);
    EXPECT_DEATH_LINE(cairn_stack_reset(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_delete(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_adopt(stack), line);
    EXPECT_DEATH_LINE(cairn_stack_read_stats(stack, &stats), line);
    EXPECT_DEATH_LINE(cairn_stack_allocator(stack), line);
    EXPECT_DEATH_LINE(ignore(cairn_allocator_alloc(allocator, 8, 8)), line);
    EXPECT_DEATH_LINE(cairn_allocator_resize(allocator, block, 8, 16), line);
    EXPECT_DEATH_LINE(cairn_allocator_free(allocator, block, 8), line);
}

} // namespace stack_state_test
