// Helpers of the tests of stacks.
#ifndef TEST_FRAME_STACK_KIT_H
#define TEST_FRAME_STACK_KIT_H

#include <memory>

#include "cairn/stack.h"

namespace stack_kit
{

struct Delete {
    void operator()(cairn_stack *stack) const { cairn_stack_delete(stack); }
};
using Stack = std::unique_ptr<cairn_stack, Delete>;

inline Stack make(cairn_stack_options options = {}) { return Stack(cairn_stack_new(&options)); }

inline size_t used(const Stack &stack)
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    return stats.used_bytes;
}

inline size_t frames(const Stack &stack)
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    return stats.frames;
}

} // namespace stack_kit

#endif
