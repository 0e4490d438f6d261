// The program's own work between its calls, which is not in a trace: only how long it took is
// known. The player has a chain of multiplications instead, each of which waits for the one before.
//
// A processor works ahead: of the allocator's instructions it runs those that wait for nothing
// beside the program's own. So the same saving is worth less or more, by what waits for what. The
// two ends of that are:
//   WORK_BESIDE   nothing of the chain waits for a block, and no call waits for the chain
//   WORK_IN_LINE  a size comes of the chain, which goes on with the block that it was given, and
//                 with what was read of a block at its end
#ifndef REPLAY_WORK_H
#define REPLAY_WORK_H

#include <stdint.h>

// Odd numbers stay odd, so the chain never comes to 0.
static inline uint64_t work(uint64_t value, uint32_t steps)
{
    for (; steps; steps--) {
        value *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(value)); // a step is a multiplication, whatever the compiler
    }
    return value;
}

// So many steps take that time here. By the clock, for about a millisecond.
uint32_t work_steps(uint64_t work_ns);

#endif
