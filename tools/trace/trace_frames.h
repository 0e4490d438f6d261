// Predicts the frames of stacks in the second form of a trace. A frame is encoded as the frame that
// was last inside the same five, two or one outer frames, by its number, or as new. Writer and
// reader keep equal tables.
#ifndef CAIRN_TOOLS_TRACE_FRAMES_H
#define CAIRN_TOOLS_TRACE_FRAMES_H

#include <stdint.h>
#include <watch/trace_format.h>

enum { FRAME_SUCCESSORS = 1 << 16, FRAME_GUESSES = 3, FRAME_NEW, FRAME_KNOWN };

struct trace_frames {
    uint64_t *addresses; // by number, from 1
    uint32_t count, room;
    uint32_t ids[TRACE_DEPTH]; // of the last stack, outermost first
    uint32_t inner[FRAME_GUESSES][FRAME_SUCCESSORS];
};

uint32_t frames_add(struct trace_frames *frames, uint64_t address);
// Returns: the number of the frame expected at this depth; 0: none.
uint32_t frames_guess(const struct trace_frames *frames, unsigned depth, unsigned guess);
void frames_was(struct trace_frames *frames, unsigned depth, uint32_t id);

#endif
