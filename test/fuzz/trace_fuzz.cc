// Fuzzing of the reader of traces, in rows and in columns: the input makes the chunks or blocks of
// a trace. The reader must reach the end or say what is damaged, in memory that the file bounds,
// and the trace can be copied to columns as far as it is sound.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "fuzz/fuzz_input.h"

extern "C" {
#include "trace_pack.h"
#include "trace_reader.h"
}

namespace
{

using fuzz::Input;
using fuzz::require;

// The second form, as docs/dev/TRACE-FORMAT.md describes it.
enum { COLUMNS = 15 };
struct BlockHead {
    uint32_t kind, count;
    uint64_t row_bytes;
    uint32_t bytes[16];
};

template <typename Value> void put(std::string &bytes, const Value &value)
{
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
}

std::string raw(Input &input, size_t count)
{
    std::string bytes;
    for (size_t i = 0; i < count; i++)
        bytes += static_cast<char>(input.byte());
    return bytes;
}

std::string header_of(unsigned version)
{
    struct trace_header header = {};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    header.version = version;
    header.chunk_bytes = TRACE_CHUNK_BYTES;
    header.state = TRACE_ENDED;
    header.end_order = UINT64_MAX;
    header.chunks = 64;
    std::string bytes;
    put(bytes, header);
    bytes.resize(TRACE_HEADER_BYTES);
    return bytes;
}

void add_chunk(Input &input, std::string &bytes)
{
    const size_t start = bytes.size(), length = input.byte();
    struct trace_chunk head = {};
    head.kind = static_cast<uint32_t>(input.below(5));
    head.lane = static_cast<uint32_t>(input.below(4));
    head.first_order = input.byte();
    head.used = static_cast<uint32_t>(sizeof head + length);
    if (input.below(16) == 0)
        head.used = static_cast<uint32_t>(input.size(30));
    put(bytes, head);
    bytes += raw(input, length);
    bytes.resize(start + TRACE_CHUNK_BYTES);
}

void add_block(Input &input, std::string &bytes)
{
    BlockHead head = {};
    head.kind = static_cast<uint32_t>(input.below(6));
    head.count = static_cast<uint32_t>(input.below(8) == 0 ? input.size(30) : input.byte());
    std::string columns;
    for (size_t used = input.below(COLUMNS + 1); used > 0; used--) {
        const size_t column = input.below(COLUMNS), length = input.below(64);
        head.bytes[column] += static_cast<uint32_t>(length);
        columns += raw(input, length);
    }
    if (input.below(16) == 0)
        head.bytes[input.below(16)] = static_cast<uint32_t>(input.size(30));
    put(bytes, head);
    bytes += columns;
}

void read_all(const char *path)
{
    char *error = nullptr;
    struct trace *trace = trace_open(path, &error);
    require(trace != nullptr, "trace_open");
    struct trace_event event;
    while (trace_next(trace, &event))
        require(event.thread <= trace_thread_count(trace), "the number of a thread");
    for (uint32_t i = 0; i <= trace_stack_count(trace); i++) {
        uint64_t frames[TRACE_DEPTH];
        require(trace_stack(trace, i, frames, nullptr) <= TRACE_DEPTH, "the depth of a stack");
    }
    (void)trace_text(trace);
    trace_close(trace);
}

void copy_all(const char *path)
{
    char *error = nullptr;
    struct trace *trace = trace_open(path, &error);
    FILE *to = fopen("/dev/null", "we");
    require(trace != nullptr && to != nullptr, "copy");
    free(trace_pack(trace, to));
    (void)fclose(to);
    trace_close(trace);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { PIECES_MOST = 16 };
    Input input(data, size);
    const unsigned version = 1 + static_cast<unsigned>(input.below(3));
    const bool copied = input.below(4) == 0;
    std::string bytes = header_of(version);
    for (unsigned i = 0; i < PIECES_MOST && !input.done(); i++)
        if (version == 1)
            add_chunk(input, bytes);
        else
            add_block(input, bytes);

    const int file = memfd_create("trace", MFD_CLOEXEC);
    require(file >= 0 &&
                write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "memfd");
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    read_all(path.c_str());
    if (copied)
        copy_all(path.c_str());
    (void)close(file);
    return 0;
}
