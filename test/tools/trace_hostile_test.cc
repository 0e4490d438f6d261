// Traces that claim more than they hold: they are refused, in memory and time that their size
// bounds.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/trace_reading.h"

namespace
{

// The second form, as docs/dev/TRACE-FORMAT.md describes it.
enum { COLUMNS_VERSION = 3, BLOCK_OF_EVENTS = 2, BLOCK_OF_STACKS = 3, BLOCK_OF_TEXT = 4 };
enum { COLUMN_CODE = 0, COLUMN_EXTRA = 2, COLUMN_GAP = 5, COLUMN_THREAD = 8, EXTRA_THREAD = 4 };
enum { STACK_NUMBER, STACK_SHARED, STACK_OWN, STACK_FRAME, STACK_ADDRESS };
struct block_head {
    uint32_t kind, count;
    uint64_t row_bytes;
    uint32_t bytes[16];
};

constexpr long kMemoryMostKb = 400 << 10; // with the tables of predictions, and a sanitizer

void put_varint(std::string &bytes, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        bytes += static_cast<char>(value | 128);
    bytes += static_cast<char>(value);
}

template <typename Value> void put_plain(std::string &bytes, const Value &value)
{
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
}

std::string header_of(unsigned version, uint64_t chunks)
{
    struct trace_header header = {};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    header.version = version;
    header.chunk_bytes = TRACE_CHUNK_BYTES;
    header.state = TRACE_ENDED;
    header.end_order = UINT64_MAX;
    header.chunks = chunks;
    std::string bytes;
    put_plain(bytes, header);
    bytes.resize(TRACE_HEADER_BYTES);
    return bytes;
}

std::string chunk_of(uint32_t kind, const std::string &records)
{
    struct trace_chunk head = {};
    head.kind = kind;
    head.used = static_cast<uint32_t>(sizeof head + records.size());
    std::string bytes;
    put_plain(bytes, head);
    bytes += records;
    bytes.resize(TRACE_CHUNK_BYTES);
    return bytes;
}

std::string block_of(uint32_t kind, uint32_t count, const std::map<unsigned, std::string> &columns)
{
    struct block_head head = {};
    head.kind = kind;
    head.count = count;
    std::string contents;
    for (const auto &[number, column] : columns) {
        head.bytes[number] = static_cast<uint32_t>(column.size());
        contents += column;
    }
    std::string bytes;
    put_plain(bytes, head);
    return bytes + contents;
}

// Reads the trace in another process, and returns the error. The memory of that process is bounded.
std::string error_of(const std::string &bytes, bool compressed = false)
{
    std::string path = testing::TempDir() + "hostile." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << bytes;
    if (compressed && system(("gzip -c " + path + " > " + path + ".gz").c_str()) == 0)
        (void)rename((path + ".gz").c_str(), path.c_str());
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        std::string error = trace_kit::read(path).error;
        (void)!write(ends[1], error.data(), error.size());
        _exit(0);
    }
    (void)close(ends[1]);
    char error[256] = {};
    (void)!read(ends[0], error, sizeof error - 1);
    (void)close(ends[0]);
    int status = -1;
    struct rusage usage = {};
    EXPECT_EQ(wait4(child, &status, 0, &usage), child);
    EXPECT_EQ(status, 0);
    EXPECT_LT(usage.ru_maxrss, kMemoryMostKb);
    (void)unlink(path.c_str());
    return error;
}

std::string rows_with_stack(uint64_t number)
{
    std::string record;
    put_varint(record, number);
    put_varint(record, 0); // shared
    put_varint(record, 2); // one own frame
    put_varint(record, 2); // its step
    return header_of(TRACE_VERSION, 1) + chunk_of(TRACE_STACKS, record);
}

std::string rows_with_thread(uint64_t number)
{
    std::string record;
    record += static_cast<char>(TRACE_MARK | TRACE_MARK_THREAD << TRACE_MARK_SHIFT);
    put_varint(record, number);
    put_varint(record, 77); // the kernel's number
    record += static_cast<char>(TRACE_FREE);
    return header_of(TRACE_VERSION, 1) + chunk_of(TRACE_EVENTS, record);
}

std::string columns_with_stack(uint64_t number)
{
    std::string numbers, frames(1, static_cast<char>(3)), address(1, static_cast<char>(2));
    put_varint(numbers, (number - 1) << 1);
    return header_of(COLUMNS_VERSION, 0) + block_of(BLOCK_OF_STACKS, 1,
                                                    {{STACK_NUMBER, numbers},
                                                     {STACK_SHARED, std::string(1, '\0')},
                                                     {STACK_OWN, std::string(1, '\2')},
                                                     {STACK_FRAME, frames},
                                                     {STACK_ADDRESS, address}});
}

std::string columns_with_thread(uint64_t number)
{
    std::string threads;
    put_varint(threads, number);
    put_varint(threads, 77);
    return header_of(COLUMNS_VERSION, 0) +
           block_of(BLOCK_OF_EVENTS, 1,
                    {{COLUMN_CODE, std::string(1, '\0')},
                     {COLUMN_EXTRA, std::string(1, static_cast<char>(EXTRA_THREAD))},
                     {COLUMN_GAP, std::string(1, '\0')},
                     {COLUMN_THREAD, threads}});
}

TEST(HostileTrace, AStackNumberAboveThoseThatTheFileHolds)
{
    constexpr uint64_t kLargest = (1 << 30) - 1;
    EXPECT_EQ(error_of(rows_with_stack(1000)), "");
    EXPECT_EQ(error_of(rows_with_stack(kLargest)), "a stack is damaged, in chunk 1");
    EXPECT_EQ(error_of(rows_with_stack(kLargest), true), "a stack is damaged, in chunk 1");
    EXPECT_EQ(error_of(columns_with_stack(kLargest)), "a stack is damaged, in block 1");
}

TEST(HostileTrace, AThreadNumberAboveThoseThatTheFileHolds)
{
    constexpr uint64_t kLargest = (1 << 24) - 1;
    EXPECT_EQ(error_of(rows_with_thread(1000)), "");
    EXPECT_EQ(error_of(rows_with_thread(kLargest)),
              "the number of a thread is larger than the file allows, in chunk 1");
    EXPECT_EQ(error_of(columns_with_thread(kLargest)), "an event is damaged, in block 1");
}

TEST(HostileTrace, ABlockLongerThanTheFile)
{
    struct block_head head = {};
    head.kind = BLOCK_OF_TEXT;
    head.bytes[0] = 256 << 20;
    std::string bytes = header_of(COLUMNS_VERSION, 0);
    put_plain(bytes, head);
    EXPECT_EQ(error_of(bytes), "the file is truncated, in block 1");
}

} // namespace
