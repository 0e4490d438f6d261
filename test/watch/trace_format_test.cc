// The tools' reader returns the encoded data: events of many lanes in their one order, stacks, and
// files that were cut or damaged.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "trace_reader.h"
#include "watch/trace_format.h"
}

namespace trace_format_test
{

struct alignas(64) Chunk {
    unsigned char bytes[TRACE_CHUNK_BYTES];
    struct trace_chunk *head() { return reinterpret_cast<struct trace_chunk *>(bytes); }
};

// A trace in memory, whose chunks begin in the order of the file.
class Maker
{
  public:
    Maker()
    {
        memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
        header.version = TRACE_VERSION;
        header.chunk_bytes = TRACE_CHUNK_BYTES;
    }
    struct trace_chunk *chunk()
    {
        chunks.push_back(std::make_unique<Chunk>());
        memset(chunks.back()->bytes, 0, sizeof chunks.back()->bytes);
        header.chunks++;
        return chunks.back()->head();
    }
    std::string write(const char *name) const
    {
        std::string path = testing::TempDir() + name + "." + std::to_string(getpid());
        std::ofstream file(path, std::ios::binary);
        std::vector<char> first(TRACE_HEADER_BYTES);
        memcpy(first.data(), &header, sizeof header);
        file.write(first.data(), TRACE_HEADER_BYTES);
        for (const auto &each : chunks)
            file.write(reinterpret_cast<const char *>(each->bytes), TRACE_CHUNK_BYTES);
        return path;
    }
    struct trace_header header = {};
    std::vector<std::unique_ptr<Chunk>> chunks;
};

struct Reading {
    std::vector<struct trace_event> events;
    std::string error;
};

Reading read_all(const std::string &path, bool keep = false)
{
    Reading reading;
    char *error = nullptr;
    struct trace *trace = trace_open(path.c_str(), &error);
    if (trace == nullptr) {
        reading.error = error;
        free(error);
    } else {
        struct trace_event event;
        while (trace_next(trace, &event))
            reading.events.push_back(event);
        reading.error = trace_error(trace) ? trace_error(trace) : "";
        trace_close(trace);
    }
    if (!keep)
        (void)unlink(path.c_str());
    return reading;
}

struct trace_record record_of(uint64_t order, uint8_t operation, uint64_t address, uint64_t size)
{
    struct trace_record record = {};
    record.order = order;
    record.operation = operation;
    record.address = address;
    record.size = size;
    return record;
}

TEST(TraceEncode, EventsOfManyLanesComeBackInOrder)
{
    enum { LANES = 7, EVENTS = 60000 };
    Maker maker;
    std::mt19937_64 random(1);
    struct trace_encoder lanes[LANES] = {};
    std::vector<struct trace_event> expected;
    uint64_t now = 1000, order = 0;
    for (int i = 0; i < EVENTS; i++) {
        struct trace_encoder *lane = &lanes[random() % LANES * (random() % 4 != 0)];
        if (!encode_has_room(lane))
            encode_begin(lane, maker.chunk(), static_cast<uint32_t>(lane - lanes), order, now);
        uint32_t thread = static_cast<uint32_t>(1 + random() % 50);
        if (lane->thread != thread)
            encode_thread(lane, thread, thread + 1000);
        if (random() % 8 == 0)
            encode_time(lane, now += random() % 100000);
        struct trace_record record = {};
        record.order = order;
        order += 1 + (random() % 16 == 0) * (random() % 300);
        record.operation = static_cast<uint8_t>(1 + random() % 5);
        record.manner = record.operation == TRACE_ALLOCATE_OTHERWISE
                            ? static_cast<uint8_t>(random() % 128)
                            : uint8_t{0};
        record.address = (random() >> (17 + random() % 40)) << 3;
        record.size = random() >> random() % 64;
        record.stack = static_cast<uint32_t>(random() % 5000);
        encode_event(lane, &record);
        struct trace_event event = {};
        event.order = record.order;
        event.time_ns = lane->time_ns;
        event.address = record.address;
        event.thread = thread;
        event.stack = record.stack;
        event.operation = record.operation == TRACE_ALLOCATE_OTHERWISE ? uint8_t{TRACE_ALLOCATE}
                                                                       : record.operation;
        bool sized = record.operation != TRACE_FREE && record.operation != TRACE_RESIZE_FROM;
        event.size = sized ? record.size : 0;
        event.alignment_log2 = record.manner & TRACE_MANNER_ALIGNMENT;
        event.zeroed = (record.manner & TRACE_MANNER_ZEROED) != 0;
        expected.push_back(event);
    }
    EXPECT_GT(maker.chunks.size(), size_t{LANES});
    Reading reading = read_all(maker.write("lanes"));
    EXPECT_EQ(reading.error, "");
    ASSERT_EQ(reading.events.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        const struct trace_event &got = reading.events[i], &want = expected[i];
        ASSERT_EQ(got.order, want.order);
        ASSERT_EQ(got.time_ns, want.time_ns) << i;
        ASSERT_EQ(got.address, want.address) << i;
        ASSERT_EQ(got.size, want.size) << i;
        ASSERT_EQ(got.thread, want.thread) << i;
        ASSERT_EQ(got.stack, want.stack) << i;
        ASSERT_EQ(got.operation, want.operation) << i;
        ASSERT_EQ(got.alignment_log2, want.alignment_log2) << i;
        ASSERT_EQ(got.zeroed, want.zeroed) << i;
    }
}

TEST(TraceEncode, AResizeThatMovesKnowsWhereItCameFrom)
{
    Maker maker;
    struct trace_encoder lane = {};
    encode_begin(&lane, maker.chunk(), 0, 5, 1);
    encode_thread(&lane, 1, 77);
    struct trace_record from = record_of(5, TRACE_RESIZE_FROM, 0x1000, 0);
    struct trace_record to = record_of(9, TRACE_RESIZE_TO, 0x2000, 300);
    struct trace_record from_two = record_of(10, TRACE_RESIZE_FROM, 0x2000, 0);
    struct trace_record failed = record_of(11, TRACE_RESIZE_FAILED, 0, 0);
    for (const struct trace_record *each : {&from, &to, &from_two, &failed})
        encode_event(&lane, each);
    Reading reading = read_all(maker.write("resize"));
    ASSERT_EQ(reading.events.size(), 4U);
    EXPECT_EQ(reading.events[1].old_address, 0x1000U);
    EXPECT_EQ(reading.events[1].address, 0x2000U);
    EXPECT_EQ(reading.events[1].size, 300U);
    EXPECT_EQ(reading.events[3].old_address, 0x2000U);
    EXPECT_EQ(reading.events[3].address, 0x2000U);
}

TEST(TraceEncode, StacksShareTheirOuterFrames)
{
    Maker maker;
    struct stack_encoder stacks = {};
    std::mt19937_64 random(2);
    std::vector<std::vector<uintptr_t>> all;
    while (maker.chunks.size() < 3) {
        std::vector<uintptr_t> frames = all.empty() ? std::vector<uintptr_t>() : all.back();
        frames.erase(frames.begin(), frames.begin() + static_cast<long>(random() % 5 %
                                                                        (frames.size() + 1)));
        for (unsigned more = 1 + random() % 4; more > 0 && frames.size() < TRACE_DEPTH; more--)
            frames.insert(frames.begin(), 0x7f0000000000U + random() % 0x10000000U);
        auto number = static_cast<uint32_t>(all.size() + 1);
        auto depth = static_cast<unsigned>(frames.size());
        bool cut = depth == TRACE_DEPTH;
        if (!encode_stack(&stacks, number, frames.data(), depth, cut)) {
            encode_stacks_begin(&stacks, maker.chunk(), 0, 0);
            ASSERT_TRUE(encode_stack(&stacks, number, frames.data(), depth, cut));
        }
        all.push_back(frames);
    }
    std::string path = maker.write("stacks");
    char *error = nullptr;
    struct trace *trace = trace_open(path.c_str(), &error);
    ASSERT_NE(trace, nullptr) << error;
    struct trace_event event;
    EXPECT_FALSE(trace_next(trace, &event));
    ASSERT_EQ(trace_stack_count(trace), all.size());
    for (size_t i = 0; i < all.size(); i++) {
        uint64_t frames[TRACE_DEPTH];
        bool cut = false;
        unsigned depth = trace_stack(trace, static_cast<uint32_t>(i + 1), frames, &cut);
        ASSERT_EQ(std::vector<uintptr_t>(frames, frames + depth), all[i]);
        ASSERT_EQ(cut, depth == TRACE_DEPTH);
    }
    EXPECT_EQ(trace_stack(trace, 0, nullptr, nullptr), 0U);
    EXPECT_EQ(trace_stack(trace, 1000000, nullptr, nullptr), 0U);
    trace_close(trace);
    (void)unlink(path.c_str());
}

TEST(TraceEncode, WhatIsBehindTheEndDoesNotCount)
{
    Maker maker;
    struct trace_encoder lane = {};
    encode_begin(&lane, maker.chunk(), 0, 0, 1);
    encode_thread(&lane, 1, 77);
    for (uint64_t order = 0; order < 10; order++) {
        struct trace_record record = record_of(order, TRACE_ALLOCATE, 8 * order, 8);
        encode_event(&lane, &record);
    }
    maker.header.state = TRACE_CUT;
    maker.header.end_order = 6;
    EXPECT_EQ(read_all(maker.write("end")).events.size(), 6U);
}

TEST(TraceEncode, CompressedFilesAreRead)
{
    Maker maker;
    struct trace_encoder lane = {};
    encode_begin(&lane, maker.chunk(), 0, 0, 1);
    encode_thread(&lane, 1, 77);
    struct trace_record record = record_of(0, TRACE_ALLOCATE, 64, 8);
    encode_event(&lane, &record);
    std::string path = maker.write("compressed");
    ASSERT_EQ(system(("gzip -f " + path).c_str()), 0);
    Reading reading = read_all(path + ".gz");
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.events.size(), 1U);
}

// Damage causes no crash and no endless loop; the events before it are returned.
TEST(TraceEncode, DamagedFilesAreSaidToBe)
{
    Maker maker;
    struct trace_encoder lane = {};
    encode_begin(&lane, maker.chunk(), 0, 0, 1);
    encode_thread(&lane, 1, 77);
    for (uint64_t order = 0; order < 100; order++) {
        struct trace_record record = record_of(order, TRACE_ALLOCATE, 8 * order * order, order);
        encode_event(&lane, &record);
    }
    std::string path = maker.write("damaged");
    std::mt19937 random(3);
    unsigned said = 0;
    for (int i = 0; i < 500; i++) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        auto at = static_cast<std::streamoff>(TRACE_HEADER_BYTES + random() % 400);
        char byte = 0;
        file.seekg(at);
        file.get(byte);
        file.seekp(at);
        file.put(static_cast<char>(random()));
        file.close();
        said += !read_all(path, true).error.empty();
        std::fstream back(path, std::ios::in | std::ios::out | std::ios::binary);
        back.seekp(at);
        back.put(byte);
    }
    EXPECT_GT(said, 10U);
    EXPECT_EQ(read_all(path, true).events.size(), 100U);
    ASSERT_EQ(truncate(path.c_str(), 4300), 0);
    EXPECT_NE(read_all(path, true).error, "");
    ASSERT_EQ(truncate(path.c_str(), 50), 0);
    EXPECT_NE(read_all(path).error.find("not a trace of Cairn"), std::string::npos);
}

} // namespace trace_format_test
