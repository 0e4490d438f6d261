// The stacks of a trace as a tree, for trace_reader.c. Each stack number leads to a node, and each
// node to the next outer one.
#ifndef CAIRN_TOOLS_TRACE_STACKS_H
#define CAIRN_TOOLS_TRACE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stack_node {
    uint64_t frame;
    uint32_t outer; // index of a node; 0: none
    uint32_t depth;
};

struct trace_stacks {
    struct stack_node *nodes; // the first node is unused
    size_t node_count, node_room;
    uint32_t *heads; // by number: 2 * node + (1 if cut); 0: not read
    uint32_t count;  // one more than the largest number
    uint32_t room;
    uint64_t numbers_most; // set by the reader: a larger number is damage
};

// Decodes all records of a chunk, without its header. Returns: false when they are damaged.
bool stacks_decode(struct trace_stacks *stacks, const unsigned char *at, const unsigned char *end);
// Adds a stack that shares its `shared` outermost frames with the previous one, whose node is
// *before, and has `count` further frames, outermost first. *before is set to its own node.
// Returns: false when the stack is invalid.
bool stacks_add(struct trace_stacks *stacks, uint32_t *before, uint64_t number, uint64_t shared,
                const uint64_t *frames, unsigned count, bool cut);
void stacks_free(struct trace_stacks *stacks);

// Reads a varint before `end`, and moves *at behind it. Returns: false when it is truncated.
static inline bool take_varint(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
    const unsigned char *from = *at;
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 64 && from < end; shift += 7) {
        unsigned char byte = *from++;
        result |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *at = from;
            *value = result;
            return true;
        }
    }
    return false;
}

static inline int64_t signed_of(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

#endif
