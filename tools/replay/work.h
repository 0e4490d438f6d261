// The program's own work between its calls. A trace contains only its duration. The player executes
// a chain of multiplications instead, each of which depends on the previous one.
//
// A processor overlaps the allocator's instructions with the program's own as far as they are
// independent. So one saving is worth less or more, depending on the dependencies. The two extremes
// are:
//   WORK_PARALLEL   the chain does not depend on blocks, and no call depends on the chain
//   WORK_IN_LINE  the size of each call depends on the chain, and the chain depends on the block
//                 and on the byte that was read before its free
#ifndef REPLAY_WORK_H
#define REPLAY_WORK_H

#include <stdint.h>

// Executes `steps` steps. Odd numbers stay odd, so the chain never becomes 0.
static inline uint64_t work(uint64_t value, uint32_t steps)
{
    for (; steps; steps--) {
        value *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(value)); // keeps one multiplication for each step
    }
    return value;
}

// Returns: the number of steps that take `work_ns`, measured by the clock within a millisecond.
uint32_t work_steps(uint64_t work_ns);

#endif
