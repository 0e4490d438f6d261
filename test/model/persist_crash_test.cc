// Enumerated crashes of the persistent heap: what a disk may hold after a power loss at any point
// of a run, each opened and compared with the model.
//
// A run's writes, changes of size and fdatasyncs are recorded in os/. For a crash behind each of
// them the disk holds, of every file, all that was followed by a fdatasync, and of the rest any
// part: every subset of the calls as long as there are at most 16, else random ones; and random
// subsets of their sectors of 512 bytes. Recovery is recorded and cut as well.
//
// CAIRN_PERSIST_STATES: how many states each run is opened in (default 400, for the full proof
// 250000), CAIRN_PERSIST_SEED: of the runs. Debug builds only: nobody records in release builds.

#include "region/persist_slots.h"

namespace
{

using namespace persist;

constexpr size_t kSector = 512;
constexpr const char *kSuffixes[] = {"", ".log0", ".log1"};

size_t number_from(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

struct Event {
    os_file_call call;
    size_t file; // index into kSuffixes
    uint64_t offset;
    std::string data;
};

std::vector<Event> *g_events; // NULL: not recording

size_t which_file(int file)
{
    char path[4096];
    const int length = os_file_path(file, path, sizeof path);
    const std::string name(path, static_cast<size_t>(std::max(length, 0)));
    for (size_t i = 1; i < 3; i++)
        if (name.size() > 5 && name.substr(name.size() - 5) == kSuffixes[i])
            return i;
    return 0;
}

int record(os_file_call call, int file, uint64_t offset, const void *data, size_t *size)
{
    if (g_events != nullptr)
        g_events->push_back({call, which_file(file), offset,
                             call == OS_CALL_WRITE
                                 ? std::string(static_cast<const char *>(data), *size)
                                 : std::string()});
    return 0;
}

using Image = std::string; // of one file

void apply(Image &image, const Event &event)
{
    if (event.call == OS_CALL_TRUNCATE)
        image.resize(event.offset);
    if (event.call == OS_CALL_EXTEND && image.size() < event.offset)
        image.resize(event.offset);
    if (event.call == OS_CALL_WRITE) {
        if (image.size() < event.offset + event.data.size())
            image.resize(event.offset + event.data.size());
        image.replace(event.offset, event.data.size(), event.data);
    }
}

// The part of a write that reached the disk: some of its sectors.
void apply_torn(Image &image, const Event &event, std::mt19937_64 &random)
{
    if (event.call != OS_CALL_WRITE)
        return apply(image, event);
    const uint64_t style = random();
    for (size_t at = 0; at < event.data.size();) {
        const size_t step =
            std::min(kSector - (event.offset + at) % kSector, event.data.size() - at);
        // Random sectors, or all of them up to a point, or from a point on.
        const bool there = style % 3 == 0   ? random() % 2 == 0
                           : style % 3 == 1 ? at < style / 3 % event.data.size()
                                            : at >= style / 3 % event.data.size();
        if (there)
            apply(image,
                  {OS_CALL_WRITE, event.file, event.offset + at, event.data.substr(at, step)});
        at += step;
    }
}

struct Disk {
    Image files[3];
    bool operator==(const Disk &other) const { return std::equal(files, files + 3, other.files); }
};

// A disk and what was written to it and may not have reached it.
struct Pending {
    Disk durable;
    std::vector<Event> writes;

    void add(const Event &event)
    {
        if (event.call != OS_CALL_SYNC) {
            writes.push_back(event);
            return;
        }
        std::vector<Event> others;
        for (const Event &write : writes)
            if (write.file == event.file)
                apply(durable.files[event.file], write);
            else
                others.push_back(write);
        writes = others;
    }
    Disk whole(uint64_t subset) const
    {
        Disk disk = durable;
        for (size_t i = 0; i < writes.size(); i++)
            if (i >= 64 || (subset >> i & 1) != 0)
                apply(disk.files[writes[i].file], writes[i]);
        return disk;
    }
    Disk torn(std::mt19937_64 &random) const
    {
        Disk disk = durable;
        for (const Event &write : writes)
            switch (random() % 4) {
            case 0:
                break;
            case 1:
                apply(disk.files[write.file], write);
                break;
            default:
                apply_torn(disk.files[write.file], write, random);
            }
        return disk;
    }
};

struct Shape {
    const char *name;
    uint64_t seed;
    size_t largest; // block
    size_t commits;
    size_t together; // commits that share a wait, at most
    unsigned flags;
    cairn_persist_tracking way;
};

class Crash : public testing::TestWithParam<Shape>
{
  protected:
    Crash() : slots_(seed()), random_(seed() + 1) {}
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "nobody records in release builds";
        os_file_watch(record);
    }
    void TearDown() override
    {
        g_events = nullptr;
        os_file_watch(nullptr);
    }
    static uint64_t seed() { return number_from("CAIRN_PERSIST_SEED", 0) * 1000 + GetParam().seed; }

    Options options() const
    {
        Options options = Options().log(1).by(GetParam().way).with(GetParam().flags);
        options.size_bytes = 1;
        return options;
    }

    void work(cairn_persist *heap)
    {
        std::vector<cairn_persist_ticket> open;
        for (size_t i = 0; i < GetParam().commits; i++) {
            const size_t changes = 1 + slots_.draw(12);
            for (size_t j = 0; j < changes; j++)
                ASSERT_TRUE(slots_.change(heap, GetParam().largest));
            if (slots_.draw(9) == 0) {
                ASSERT_EQ(cairn_persist_abort(heap), 0);
                slots_.note_abort(stats_of(heap).last_commit);
                continue;
            }
            const uint64_t number = stats_of(heap).last_commit + 1;
            slots_.note_commit(number);
            begun_[events_.size()] = number;
            cairn_persist_ticket ticket;
            ASSERT_EQ(cairn_persist_commit_async(heap, &ticket), 0);
            if (slots_.draw(GetParam().together) == 0) {
                ASSERT_EQ(cairn_persist_wait(heap, ticket), 0);
                acknowledged_[events_.size()] = ticket;
            }
            if (slots_.draw(25) == 0) {
                ASSERT_EQ(cairn_persist_checkpoint(heap), 0);
            }
        }
    }

    void put(const Disk &disk) const
    {
        for (size_t i = 0; i < 3; i++)
            write_file(directory_.file("state") + kSuffixes[i], disk.files[i]);
    }

    static uint64_t last_at(const std::map<size_t, uint64_t> &marks, size_t events)
    {
        const auto after = marks.upper_bound(events);
        return after == marks.begin() ? 0 : std::prev(after)->second;
    }

    // Opens what a crash behind so many events left.
    void judge(const Disk &disk, size_t events)
    {
        states_++;
        put(disk);
        const char *why = nullptr;
        cairn_persist *heap = open_heap(directory_.file("state"), options(), &why);
        ASSERT_NE(heap, nullptr) << why << " after " << events << " events";
        const uint64_t number = stats_of(heap).last_commit;
        EXPECT_GE(number, last_at(acknowledged_, events)) << "lost, after " << events;
        EXPECT_LE(number, last_at(begun_, events)) << "invented, after " << events;
        if (number > 0 && slots_.knows(number)) {
            EXPECT_EQ(Slots::read(heap), slots_.contents(number)) << number << ", " << events;
            EXPECT_EQ(check(heap), "");
        }
        if (states_ % 64 == 0) { // it goes on from there
            Slots::set_up(heap);
            char *block = allocate(heap, 3000);
            memset(block, 1, 3000);
            EXPECT_EQ(cairn_persist_commit(heap), 0);
            EXPECT_EQ(check(heap), "");
        }
        files_close(heap); // as if killed
        heap->process = 0;
        cairn_persist_close(heap);
    }

    // A crash in recovery from that disk.
    void judge_recovery(const Disk &disk, size_t events)
    {
        put(disk);
        std::vector<Event> recovery;
        g_events = &recovery;
        cairn_persist *heap = open_heap(directory_.file("state"), options());
        g_events = nullptr;
        ASSERT_NE(heap, nullptr);
        files_close(heap);
        heap->process = 0;
        cairn_persist_close(heap);
        Pending pending = {disk, {}};
        for (const Event &event : recovery) {
            pending.add(event);
            judge(pending.torn(random_), events);
            judge(pending.whole(random_()), events);
            if (HasFailure())
                return;
        }
    }

    void judge_behind(const Pending &pending, size_t events, size_t most)
    {
        const size_t writes = pending.writes.size();
        if (writes <= 16 && (size_t{1} << writes) <= most / 2) {
            for (uint64_t subset = 0; subset >> writes == 0 && !HasFailure(); subset++)
                judge(pending.whole(subset), events);
        } else {
            judge(pending.whole(0), events);
            judge(pending.whole(~uint64_t{0}), events);
            for (size_t i = 2; i < most / 2 && !HasFailure(); i++)
                judge(pending.whole(random_()), events);
        }
        for (size_t i = 0; i < most / 2 && writes > 0 && !HasFailure(); i++) {
            const Disk disk = pending.torn(random_);
            judge(disk, events);
            if (random_() % 256 == 0)
                judge_recovery(disk, events);
        }
    }

    Directory directory_;
    Slots slots_;
    std::mt19937_64 random_;
    std::vector<Event> events_;
    std::map<size_t, uint64_t> begun_, acknowledged_; // by number of events before
    size_t states_ = 0;
};

TEST_P(Crash, EveryStateIsACommit)
{
    const size_t states = number_from("CAIRN_PERSIST_STATES", 400);
    const std::string path = directory_.file();
    cairn_persist *heap = open_heap(path, options());
    ASSERT_NE(heap, nullptr);
    ASSERT_TRUE(Slots::set_up(heap));
    slots_.note_commit(1);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    Pending pending;
    for (size_t i = 0; i < 3; i++)
        pending.durable.files[i] = read_file(path + kSuffixes[i]);
    begun_[0] = acknowledged_[0] = 1;
    g_events = &events_;
    work(heap);
    g_events = nullptr;
    cairn_persist_close(heap);

    const size_t most = std::max<size_t>(4, states / (events_.size() + 1));
    const size_t stride = std::max<size_t>(1, 4 * events_.size() / states);
    for (size_t i = 0; i < events_.size() && !HasFailure(); i++) {
        pending.add(events_[i]);
        if ((i + seed()) % stride == 0)
            judge_behind(pending, i + 1, most);
    }
    RecordProperty("events", static_cast<int>(events_.size()));
    RecordProperty("states", static_cast<int>(states_));
    printf("%zu events, %zu states\n", events_.size(), states_);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Crash,
    testing::Values(
        Shape{"OneAtATime", 1, 3000, 60, 1, 0, CAIRN_PERSIST_AUTO},
        Shape{"Groups", 2, 3000, 80, 4, CAIRN_PERSIST_WRITERS_PAUSE, CAIRN_PERSIST_AUTO},
        Shape{"LargeBlocks", 3, 60000, 60, 3, CAIRN_PERSIST_WRITERS_PAUSE, CAIRN_PERSIST_AUTO},
        Shape{"ByComparing", 4, 8000, 60, 2, 0, CAIRN_PERSIST_PAGEMAP},
        Shape{"ByProtecting", 5, 8000, 60, 2, CAIRN_PERSIST_WRITERS_PAUSE, CAIRN_PERSIST_PROTECT}),
    [](const auto &shape) { return shape.param.name; });

} // namespace
