// A trace in columns has the same events, stacks, threads and lines as the one that it was made of;
// and a damaged one is told, never believed to be whole.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "trace_pack.h"
#include "trace_reader.h"
}

namespace
{

// Chunks of the first form, made of any values whatever.
class Rows
{
  public:
    explicit Rows(unsigned seed) : random_(seed) {}

    std::string write(const char *name, unsigned chunks)
    {
        std::string path = testing::TempDir() + name + "." + std::to_string(getpid());
        std::ofstream file(path, std::ios::binary);
        struct trace_header header = {};
        memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
        header.version = TRACE_VERSION;
        header.chunk_bytes = TRACE_CHUNK_BYTES;
        header.start_ns = 1000000;
        header.state = TRACE_ENDED;
        header.end_order = UINT64_MAX;
        header.chunks = chunks;
        std::vector<char> first(TRACE_HEADER_BYTES);
        memcpy(first.data(), &header, sizeof header);
        file.write(first.data(), TRACE_HEADER_BYTES);
        for (unsigned i = 0; i < chunks; i++)
            write_chunk(file, i);
        return path;
    }

  private:
    uint64_t below(uint64_t limit) { return random_() % limit; }
    void varint(uint64_t value)
    {
        for (; value >= 128; value >>= 7)
            bytes_.push_back(static_cast<char>(value | 128));
        bytes_.push_back(static_cast<char>(value));
    }
    void signed_varint(int64_t value)
    {
        varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
    }

    void add_stack()
    {
        varint(stacks_ += 1 + (below(20) == 0));
        uint64_t shared = below(depth_ + 1);
        uint64_t own = 1 + below(std::min<uint64_t>(8, TRACE_DEPTH - shared + 1) - 0);
        own = std::min<uint64_t>(own, TRACE_DEPTH - shared);
        varint(shared);
        varint(2 * own + below(2));
        for (uint64_t i = 0; i < own; i++)
            signed_varint(below(3) ? static_cast<int64_t>(below(40)) : -1000);
        depth_ = shared + own;
    }

    // Any operation with fields of any size; mostly as programs have them.
    void add_event()
    {
        static const unsigned kinds[] = {1, 1, 1, 2, 3, 3, 3, 4, 5, 6, 7};
        unsigned operation = kinds[below(11)];
        bool sized = operation <= 2 || operation == TRACE_RESIZE || operation == TRACE_RESIZE_TO;
        unsigned tag = operation | TRACE_HAS_STACK;
        bool gap = below(50) == 0, wild = below(200) == 0;
        if (gap)
            tag |= TRACE_HAS_ORDER;
        if (sized)
            tag |= TRACE_HAS_SIZE;
        if (operation != TRACE_RESIZE_FAILED)
            tag |= TRACE_HAS_PLACE;
        bytes_.push_back(static_cast<char>(tag));
        if (operation == TRACE_ALLOCATE_OTHERWISE)
            bytes_.push_back(static_cast<char>(below(128)));
        if (gap)
            varint(1 + below(wild ? 1 << 20 : 3));
        varint(below(stacks_ + 1));
        if (sized)
            varint(wild ? random_() : below(300));
        if (tag & TRACE_HAS_PLACE)
            signed_varint(wild ? static_cast<int64_t>(random_()) >> 5
                               : static_cast<int64_t>(below(2000)) - 1000);
        order_ += gap ? 1U << 20 : 1;
    }

    void write_chunk(std::ofstream &file, unsigned number)
    {
        struct trace_chunk head = {};
        bytes_.clear();
        depth_ = 0;
        head.kind = number % 4 == 0 ? TRACE_STACKS : number % 4 == 1 ? TRACE_TEXT : TRACE_EVENTS;
        head.lane = number % 4;
        head.first_order = order_;
        head.start_ns = 1000000 + number * 1000;
        while (bytes_.size() < 30000) {
            if (head.kind == TRACE_STACKS) {
                add_stack();
            } else if (head.kind == TRACE_TEXT) {
                bytes_ += "map " + std::to_string(number) + "\n";
                break;
            } else {
                if (bytes_.empty() || below(10) == 0) {
                    bytes_.push_back(TRACE_MARK | TRACE_MARK_THREAD << TRACE_MARK_SHIFT);
                    uint64_t thread = 1 + below(100);
                    varint(thread);
                    varint(thread + 5000);
                } else if (below(10) == 0) {
                    bytes_.push_back(TRACE_MARK | TRACE_MARK_TIME << TRACE_MARK_SHIFT);
                    varint(below(100000));
                }
                add_event();
            }
        }
        head.used = static_cast<uint32_t>(sizeof head + bytes_.size());
        bytes_.resize(TRACE_CHUNK_BYTES - sizeof head);
        file.write(reinterpret_cast<const char *>(&head), sizeof head);
        file.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    }

    std::mt19937_64 random_;
    std::string bytes_;
    uint64_t order_ = 0, stacks_ = 0, depth_ = 0;
};

// All that a reader has to say of a trace; short, so that large ones can be compared.
struct Reading {
    std::vector<struct trace_event> events;
    std::vector<std::vector<uint64_t>> stacks;
    std::vector<uint32_t> threads;
    std::string text, error;
    uint64_t bytes = 0;
    bool opened = false;
};

Reading read(const std::string &path)
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
    for (uint32_t i = 1; i <= trace_stack_count(trace); i++) {
        uint64_t frames[TRACE_DEPTH];
        bool cut;
        unsigned depth = trace_stack(trace, i, frames, &cut);
        reading.stacks.emplace_back(frames, frames + depth);
        reading.stacks.back().push_back(cut);
    }
    for (uint32_t i = 1; i <= trace_thread_count(trace); i++)
        reading.threads.push_back(trace_thread_id(trace, i));
    reading.text = trace_text(trace);
    reading.error = trace_error(trace) ? trace_error(trace) : "";
    reading.bytes = trace_bytes(trace);
    reading.opened = true;
    trace_close(trace);
    return reading;
}

bool same(const struct trace_event &a, const struct trace_event &b)
{
    return a.order == b.order && a.time_ns == b.time_ns && a.address == b.address &&
           a.old_address == b.old_address && a.size == b.size && a.thread == b.thread &&
           a.stack == b.stack && a.operation == b.operation &&
           a.alignment_log2 == b.alignment_log2 && a.zeroed == b.zeroed;
}

size_t differing(const Reading &a, const Reading &b)
{
    size_t count = 0;
    for (size_t i = 0; i < a.events.size() && i < b.events.size(); i++)
        count += !same(a.events[i], b.events[i]);
    return count;
}

std::string in_columns(const std::string &path)
{
    std::string copy = path + ".columns";
    char *error = nullptr;
    struct trace *trace = trace_open(path.c_str(), &error);
    EXPECT_NE(trace, nullptr) << error;
    FILE *file = fopen(copy.c_str(), "wb");
    char *wrong = trace_pack(trace, file);
    EXPECT_EQ(wrong, nullptr) << wrong;
    (void)fclose(file);
    trace_close(trace);
    return copy;
}

void expect_equal(const std::string &path)
{
    std::string copy = in_columns(path);
    Reading rows = read(path), columns = read(copy);
    EXPECT_EQ(rows.error, "");
    EXPECT_EQ(columns.error, "");
    EXPECT_EQ(rows.events.size(), columns.events.size());
    EXPECT_EQ(differing(rows, columns), 0U);
    EXPECT_TRUE(rows.stacks == columns.stacks);
    EXPECT_EQ(rows.threads, columns.threads);
    EXPECT_EQ(rows.text, columns.text);
    EXPECT_EQ(rows.bytes, columns.bytes);
    // What is in columns can be copied again.
    std::string again = in_columns(copy);
    Reading third = read(again);
    EXPECT_EQ(third.events.size(), rows.events.size());
    EXPECT_EQ(differing(rows, third), 0U);
    (void)unlink(copy.c_str());
    (void)unlink(again.c_str());
}

std::string contents(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void put_contents(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TraceColumns, EventsOfAnyKindComeBack)
{
    for (unsigned seed = 1; seed <= 4; seed++) {
        std::string path = Rows(seed).write("any", 40);
        expect_equal(path);
        (void)unlink(path.c_str());
    }
}

TEST(TraceColumns, MoreEventsThanABlockHolds)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "takes minutes";
    std::string path = Rows(9).write("long", 560);
    Reading rows = read(path);
    EXPECT_GT(rows.events.size(), 1100000U);
    expect_equal(path);
    (void)unlink(path.c_str());
}

TEST(TraceColumns, ATraceWithoutEvents)
{
    std::string path = Rows(1).write("none", 0);
    expect_equal(path);
    (void)unlink(path.c_str());
}

TEST(TraceColumns, TracesOfPrograms)
{
    if (system("gzip --version >/dev/null 2>&1") != 0)
        GTEST_SKIP() << "needs gzip";
    for (const char *name : {"perl", "sqlite3", "python3", "jq"}) {
        std::string plain = testing::TempDir() + name + "." + std::to_string(getpid());
        std::string command =
            std::string("gzip -dc ") + TRACES + "/" + name + ".trace.gz >" + plain;
        ASSERT_EQ(system(command.c_str()), 0);
        expect_equal(plain);
        (void)unlink(plain.c_str());
    }
}

TEST(TraceColumns, WhatIsCutIsTold)
{
    std::string path = Rows(3).write("cut", 12);
    std::string copy = in_columns(path);
    std::string whole = contents(copy);
    Reading all = read(copy);
    for (size_t i = 0; i < 60; i++) {
        size_t length = i < 20 ? whole.size() - 1 - i * 7 : whole.size() * (i - 20) / 40;
        put_contents(copy, whole.substr(0, length));
        Reading part = read(copy);
        EXPECT_NE(part.error, "") << length;
        EXPECT_LE(part.events.size(), all.events.size());
        EXPECT_EQ(differing(part, all), 0U);
    }
    (void)unlink(path.c_str());
    (void)unlink(copy.c_str());
}

TEST(TraceColumns, DamageEndsTheReadingAtMost)
{
    std::string path = Rows(5).write("damaged", 6);
    std::string copy = in_columns(path);
    std::string whole = contents(copy);
    std::mt19937_64 random(1);
    size_t told = 0;
    for (int i = 0; i < 300; i++) {
        std::string damaged = whole;
        for (int j = 0; j < 4; j++)
            damaged[TRACE_HEADER_BYTES + random() % (whole.size() - TRACE_HEADER_BYTES)] =
                static_cast<char>(random());
        put_contents(copy, damaged);
        told += read(copy).error != "";
    }
    EXPECT_GT(told, 100U);
    (void)unlink(path.c_str());
    (void)unlink(copy.c_str());
}

} // namespace
