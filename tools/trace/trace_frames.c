// The tables of predicted frames. trace_frames.h describes them.
#include "trace_frames.h"

#include "trace_input.h"

uint32_t frames_add(struct trace_frames *frames, uint64_t address)
{
    if (++frames->count >= frames->room) {
        frames->room = frames->room ? frames->room * 2 : 1024;
        frames->addresses =
            more_memory(frames->addresses, frames->room * sizeof *frames->addresses);
    }
    frames->addresses[frames->count] = address;
    return frames->count;
}

static uint32_t place(const struct trace_frames *frames, unsigned depth, unsigned guess)
{
    static const unsigned char outer[FRAME_GUESSES] = {5, 2, 1};
    uint32_t hash = 0;
    for (unsigned i = 1; i <= outer[guess] && i <= depth; i++)
        hash = (hash + frames->ids[depth - i]) * 0x9E3779B1U;
    return hash >> 16;
}

uint32_t frames_guess(const struct trace_frames *frames, unsigned depth, unsigned guess)
{
    return frames->inner[guess][place(frames, depth, guess)];
}

void frames_was(struct trace_frames *frames, unsigned depth, uint32_t id)
{
    for (unsigned i = 0; i < FRAME_GUESSES; i++)
        frames->inner[i][place(frames, depth, i)] = id;
    frames->ids[depth] = id;
}
