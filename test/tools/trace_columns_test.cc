// A trace in columns has the events, stacks, threads and lines of its source; a damaged one is
// reported and never read as complete.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tools/trace_reading.h"

extern "C" {
#include "trace_pack.h"
}

using trace_kit::read;
using trace_kit::Reading;

namespace
{

// The events of a trace: arbitrary values, those of a loop, or those of objects with several blocks
// that are freed in order of allocation or in any order.
enum class Shape { any, loop, objects };

// Chunks in the form of rows, with arbitrary values.
class Rows
{
  public:
    explicit Rows(unsigned seed) : random_(seed) {}

    std::string write(const char *name, unsigned chunks, size_t chunk_bytes = 30000,
                      Shape shape = Shape::any)
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
        chunk_bytes_ = chunk_bytes;
        shape_ = shape;
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

    // Adds any operation with fields of any size, mostly as programs have them.
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
        if (tag & TRACE_HAS_PLACE) {
            int64_t step = wild ? static_cast<int64_t>(random_()) >> 5
                                : static_cast<int64_t>(below(2000)) - 1000;
            bool known = operation >= TRACE_FREE && operation <= TRACE_RESIZE_FROM;
            if (known && !places_.empty() && below(8) > 0)
                step = places_[places_.size() - 1 - below(std::min<size_t>(9, places_.size()))] -
                       place_;
            signed_varint(step);
            place_ += step;
            if (!known && !wild && operation != TRACE_RESIZE_FAILED)
                places_.push_back(place_);
        }
        order_ += gap ? 1U << 20 : 1;
    }

    // Adds events of a loop, on a heap that hands out the block that was freed last.
    void add_regular_event()
    {
        static const unsigned kinds[] = {1, 1, 3, 1, 1, 1, 3, 4, 3, 1, 5, 6, 3};
        unsigned at = turn_++ % 13, operation = kinds[at];
        bool sized = operation == 1 || operation == 4 || operation == 6;
        bytes_.push_back(static_cast<char>(operation | TRACE_HAS_STACK | TRACE_HAS_PLACE |
                                           (sized ? TRACE_HAS_SIZE : 0)));
        varint(std::min<uint64_t>(at * at % 7, stacks_));
        if (sized)
            varint(at % 3 ? 40 : 33 + turn_ / 13 % 3);
        int64_t place = fresh_;
        if (operation == 1 || operation == 6) {
            if (free_.empty()) {
                fresh_ += 6;
            } else {
                place = free_.back();
                free_.pop_back();
            }
            places_.push_back(place);
        } else if (!places_.empty()) {
            size_t which =
                at == 8 ? 0 : places_.size() - 1 - std::min<size_t>(at == 2, places_.size() - 1);
            place = places_[which];
            if (operation != TRACE_RESIZE) {
                places_.erase(places_.begin() + static_cast<std::ptrdiff_t>(which));
                free_.push_back(place);
            }
        }
        signed_varint(place - place_);
        place_ = place;
        order_++;
    }

    void add_plain(unsigned operation, uint64_t stack, int64_t place, uint64_t size = 0)
    {
        bytes_.push_back(static_cast<char>(operation | TRACE_HAS_STACK | TRACE_HAS_PLACE |
                                           (size ? TRACE_HAS_SIZE : 0)));
        varint(stack);
        if (size)
            varint(size);
        signed_varint(place - place_);
        place_ = place;
        order_++;
    }

    // Adds events of an object, which has three blocks: two stacks make them, two free them.
    void add_object_events()
    {
        if (objects_.size() < 20 || (objects_.size() < 400 && below(2))) {
            objects_.push_back(fresh_);
            for (int i = 0; i < 3; i++)
                add_plain(TRACE_ALLOCATE, i == 2 ? 2 : 1, fresh_ + 4 * i, i == 1 ? 20 : 32);
            if (below(4) == 0) // one that stays, from a stack of its own
                add_plain(TRACE_ALLOCATE, 3, fresh_ + 12, 16);
            fresh_ += 16;
            return;
        }
        bool in_order = turn_++ / 60 % 2 == 0;
        size_t which = in_order              ? 0
                       : turn_ / 20 % 2 == 0 ? objects_.size() - 1
                                             : below(objects_.size());
        int64_t object = objects_[which];
        objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(which));
        int first = in_order ? 0 : 2;
        for (int i : {first, 1, 2 - first})
            add_plain(TRACE_FREE, i == first ? 5 : 6, object + 4 * i);
    }

    void write_chunk(std::ofstream &file, unsigned number)
    {
        struct trace_chunk head = {};
        bytes_.clear();
        depth_ = 0;
        place_ = 0;
        head.kind = number % 4 == 0 ? TRACE_STACKS : number % 4 == 1 ? TRACE_TEXT : TRACE_EVENTS;
        head.lane = number % 4;
        head.first_order = order_;
        head.start_ns = 1000000 + number * 1000;
        while (bytes_.size() < chunk_bytes_) {
            if (head.kind == TRACE_STACKS) {
                add_stack();
            } else if (head.kind == TRACE_TEXT) {
                bytes_ += "map " + std::to_string(number) + "\n";
                break;
            } else {
                if (bytes_.empty() || below(shape_ == Shape::any ? 10 : 200) == 0) {
                    bytes_.push_back(TRACE_MARK | TRACE_MARK_THREAD << TRACE_MARK_SHIFT);
                    uint64_t thread = 1 + below(100);
                    varint(thread);
                    varint(thread + 5000);
                } else if (below(10) == 0) {
                    bytes_.push_back(TRACE_MARK | TRACE_MARK_TIME << TRACE_MARK_SHIFT);
                    varint(below(100000));
                }
                if (shape_ == Shape::loop && below(30) > 0)
                    add_regular_event();
                else if (shape_ == Shape::objects && below(60) > 0)
                    add_object_events();
                else
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
    size_t chunk_bytes_ = 0;
    Shape shape_ = Shape::any;
    std::deque<int64_t> objects_;
    int64_t fresh_ = 1 << 20;
    unsigned turn_ = 0;
    std::vector<int64_t> free_;
    int64_t place_ = 0;           // place of the last event in the chunk, in units
    std::vector<int64_t> places_; // places of new blocks
};

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

void expect_equal(const Reading &rows, const Reading &columns)
{
    EXPECT_EQ(rows.error, "");
    EXPECT_EQ(columns.error, "");
    EXPECT_EQ(rows.events.size(), columns.events.size());
    EXPECT_EQ(differing(rows, columns), 0U);
    EXPECT_TRUE(rows.frames == columns.frames);
    EXPECT_EQ(rows.ids, columns.ids);
    EXPECT_EQ(rows.text, columns.text);
    EXPECT_EQ(rows.bytes, columns.bytes);
}

void expect_equal(const std::string &path)
{
    std::string copy = in_columns(path);
    Reading rows = read(path);
    expect_equal(rows, read(copy));
    // A trace in columns can be copied again.
    std::string again = in_columns(copy);
    Reading third = read(again);
    EXPECT_EQ(third.events.size(), rows.events.size());
    EXPECT_EQ(differing(rows, third), 0U);
    (void)unlink(copy.c_str());
    (void)unlink(again.c_str());
}

std::string contents(const std::string &path)
{
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::string bytes(size_t(std::max<std::streamoff>(file.tellg(), 0)), '\0');
    file.seekg(0).read(bytes.data(), std::streamsize(bytes.size()));
    return bytes;
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

// The prediction of events is part of the format: a file of this version must be readable for ever.
// A change of the prediction needs another version of the format and another file, which
// CAIRN_TEST_WRITE_TRACE=FILE in the environment of this test writes.
TEST(TraceColumns, AFileOfThisVersionIsReadForEver)
{
    std::string path = Rows(7).write("pinned", 12, 1000, Shape::objects);
    if (const char *target = getenv("CAIRN_TEST_WRITE_TRACE")) {
        std::string copy = in_columns(path);
        put_contents(target, contents(copy));
        (void)unlink(copy.c_str());
    }
    Reading pinned = read(PINNED "3.trace");
    EXPECT_EQ(pinned.header.version, 3U);
    expect_equal(read(path), pinned);
    (void)unlink(path.c_str());
}

TEST(TraceColumns, AFileOfTheVersionBeforeIsReadStill)
{
    std::string path = Rows(7).write("before", 12, 1000, Shape::loop);
    Reading pinned = read(PINNED "2.trace");
    EXPECT_EQ(pinned.header.version, 2U);
    expect_equal(read(path), pinned);
    std::string again = in_columns(PINNED "2.trace"); // this trace has the present version
    expect_equal(read(path), read(again));
    (void)unlink(path.c_str());
    (void)unlink(again.c_str());
}

TEST(TraceColumns, AVersionThatIsNotKnownIsRefused)
{
    std::string path = Rows(7).write("later", 0);
    std::string bytes = contents(path);
    for (int version : {0, 4}) {
        bytes[offsetof(struct trace_header, version)] = static_cast<char>(version);
        put_contents(path, bytes);
        EXPECT_NE(read(path).error.find("has format version " + std::to_string(version) +
                                        ", this tool reads 1 to 3"),
                  std::string::npos);
    }
    (void)unlink(path.c_str());
}

// Bytes of a column in all blocks of events.
std::string column(const std::string &path, unsigned number)
{
    std::string bytes = contents(path), result;
    for (size_t at = TRACE_HEADER_BYTES; at < bytes.size();) {
        uint32_t head[20]; // kind, count, bytes of rows in two fields, then those of columns
        memcpy(head, &bytes[at], sizeof head);
        at += sizeof head;
        for (unsigned i = 0; i < 16; i++) {
            if (head[0] == 2 && i == number)
                result += bytes.substr(at, head[4 + i]);
            at += head[4 + i];
        }
    }
    return result;
}

// The traces of the other cases use every code of the column of freed blocks.
TEST(TraceColumns, EachWayToSayAFreedBlockIsTaken)
{
    std::set<int> codes;
    for (Shape shape : {Shape::any, Shape::loop, Shape::objects}) {
        std::string path = Rows(2).write("ways", 16, 30000, shape);
        expect_equal(path);
        std::string copy = in_columns(path);
        for (char code : column(copy, 13))
            codes.insert(code);
        (void)unlink(path.c_str());
        (void)unlink(copy.c_str());
    }
    std::set<int> all = {0, 2, 4, 5, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    EXPECT_EQ(codes, all);
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

void expect_damage_is_told(const std::string &whole, const std::string &copy)
{
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
}

TEST(TraceColumns, DamageEndsTheReadingAtMost)
{
    for (Shape shape : {Shape::any, Shape::objects}) {
        std::string path = Rows(5).write("damaged", 6, 30000, shape);
        std::string copy = in_columns(path);
        expect_damage_is_told(contents(copy), copy);
        (void)unlink(path.c_str());
        (void)unlink(copy.c_str());
    }
    std::string copy = testing::TempDir() + "before." + std::to_string(getpid());
    expect_damage_is_told(contents(PINNED "2.trace"), copy);
    (void)unlink(copy.c_str());
}

} // namespace
