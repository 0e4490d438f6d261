// A trace that a test reads as a whole.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "trace_reader.h"
}

namespace trace_kit
{

struct Reading {
    struct trace_header header = {};
    std::vector<struct trace_event> events;
    // of stacks from 1 on; the last entry is 1 if it was cut
    std::vector<std::vector<uint64_t>> frames;
    std::vector<uint32_t> ids;                 // the kernel's numbers of threads from 1 on
    std::map<uint32_t, uint32_t> numbers;      // numbers of threads by the kernel's numbers
    uint32_t threads = 0, stacks = 0;
    uint64_t bytes = 0;
    std::string text, error;
};

inline Reading read(const std::string &path)
{
    Reading reading;
    char *error = nullptr;
    struct trace *trace = trace_open(path.c_str(), &error);
    if (trace == nullptr) {
        reading.error = error;
        free(error);
        return reading;
    }
    struct trace_event event;
    while (trace_next(trace, &event))
        reading.events.push_back(event);
    reading.header = *trace_head(trace);
    reading.threads = trace_thread_count(trace);
    reading.stacks = trace_stack_count(trace);
    for (uint32_t i = 1; i <= reading.stacks; i++) {
        uint64_t frames[TRACE_DEPTH];
        bool cut;
        unsigned depth = trace_stack(trace, i, frames, &cut);
        reading.frames.emplace_back(frames, frames + depth);
        reading.frames.back().push_back(cut);
    }
    for (uint32_t i = 1; i <= reading.threads; i++) {
        reading.ids.push_back(trace_thread_id(trace, i));
        reading.numbers[reading.ids.back()] = i;
    }
    reading.text = trace_text(trace);
    reading.error = trace_error(trace) ? trace_error(trace) : "";
    reading.bytes = trace_bytes(trace);
    trace_close(trace);
    return reading;
}

} // namespace trace_kit
