// Enumerated crashes of the persistent heap: the states that a disk may have after a power loss at
// any point of a run are opened and compared with the model.
//
// The writes, changes of size and fdatasyncs of a run are recorded in os/. For a crash behind each
// of them, the disk holds every call that a fdatasync of its file followed, and any part of the
// later calls: every subset while they are at most 16, otherwise random subsets; and random subsets
// of their sectors of 512 bytes.
//
// From some of these states the run continues, as one life after another: it recovers, works, and
// is cut again at any point, also during recovery. A life may also begin with a kill: then recovery
// can read what the killed program had written, although it need not be on the disk. In some lives
// an fdatasync fails: the data may have reached the disk or not, and is not written again.
//
// CAIRN_PERSIST_STATES is the number of states in which each run is opened (default 200, for the
// full proof 250000), CAIRN_PERSIST_SEED the seed of the runs. A debug build is needed, since
// release builds record no calls.

#include "region/persist_slots.h"

#include <utility>

extern "C" {
#include "os/file.h"
}

namespace persist_crash_test
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
    bool failed; // the fdatasync failed
};

std::vector<Event> *g_events;   // NULL: not recording
size_t g_sync_fails = SIZE_MAX; // number of fdatasyncs until one fails

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
    if (g_events == nullptr)
        return 0;
    const bool fails = call == OS_CALL_SYNC && g_sync_fails-- == 0;
    std::string bytes;
    if (call == OS_CALL_WRITE)
        bytes.assign(static_cast<const char *>(data), *size);
    if (call == OS_CALL_PUNCH)
        bytes.assign(*size, '\0');
    g_events->push_back({call, which_file(file), offset, bytes, fails});
    return fails ? -EIO : 0;
}

using Image = std::string; // content of one file

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
    if (event.call == OS_CALL_PUNCH && event.offset < image.size())
        image.replace(event.offset, event.data.size(),
                      std::min(event.data.size(), image.size() - event.offset), '\0');
}

// Applies the part of a write that reached the disk: some of its sectors.
void apply_torn(Image &image, const Event &event, std::mt19937_64 &random)
{
    if (event.call != OS_CALL_WRITE)
        return apply(image, event);
    const uint64_t style = random();
    for (size_t at = 0; at < event.data.size();) {
        const size_t step =
            std::min(kSector - (event.offset + at) % kSector, event.data.size() - at);
        // Random sectors, or all sectors before a point, or all from a point on.
        const bool there = style % 3 == 0   ? random() % 2 == 0
                           : style % 3 == 1 ? at < style / 3 % event.data.size()
                                            : at >= style / 3 % event.data.size();
        if (there)
            apply(image, {OS_CALL_WRITE, event.file, event.offset + at, event.data.substr(at, step),
                          false});
        at += step;
    }
}

struct Disk {
    Image files[3];
    bool operator==(const Disk &other) const { return std::equal(files, files + 3, other.files); }
};

// A disk, and the writes that may not have reached it.
struct Pending {
    Disk durable;
    std::vector<Event> writes;

    void add(const Event &event, std::mt19937_64 &random)
    {
        if (event.call != OS_CALL_SYNC) {
            writes.push_back(event);
            return;
        }
        std::vector<Event> others;
        for (const Event &write : writes)
            if (write.file != event.file)
                others.push_back(write);
            else if (!event.failed || random() % 4 == 0)
                apply(durable.files[event.file], write);
            else if (random() % 2 == 0)
                apply_torn(durable.files[event.file], write, random);
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
    size_t largest; // bytes of the largest block
    size_t commits;
    size_t together; // greatest number of commits that share a wait
    unsigned flags;
    cairn_persist_tracking way;
};

// The actions of a program from one open on, and the content that must survive a crash.
struct Life {
    Slots slots;
    std::vector<Event> events;
    std::map<size_t, uint64_t> begun, acknowledged; // commits, by the number of events before them
    cairn_persist *heap = nullptr;

    explicit Life(const Slots &known) : slots(known) {}

    // The life after `past`, which was cut behind `cut` events.
    Life(const Life &past, size_t cut) : slots(past.slots)
    {
        begun[0] = last_at(past.begun, cut);
        acknowledged[0] = last_at(past.acknowledged, cut);
    }

    static uint64_t last_at(const std::map<size_t, uint64_t> &marks, size_t events)
    {
        const auto after = marks.upper_bound(events);
        return after == marks.begin() ? 0 : std::prev(after)->second;
    }
    // The heap durably holds commit `number`, and nothing later.
    void note_found(uint64_t number)
    {
        slots.note_abort(number);
        begun[events.size()] = acknowledged[events.size()] = number;
    }
};

struct Work {
    size_t largest; // bytes of the largest block
    size_t commits;
    size_t together; // greatest number of commits that share a wait
};

class Crash : public testing::TestWithParam<Shape>
{
  protected:
    Crash() : random_(seed() + 1) {}
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "calls are recorded in debug builds";
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

    // Commits.
    // Returns: false when an fdatasync failed, after which all commits are refused.
    bool commit(Life &life, size_t together)
    {
        const uint64_t number = stats_of(life.heap).last_commit + 1;
        life.slots.note_commit(number);
        life.begun[life.events.size()] = number;
        cairn_persist_ticket ticket;
        if (cairn_persist_commit_async(life.heap, &ticket) != 0)
            return false;
        if (life.slots.draw(together) != 0)
            return true;
        if (cairn_persist_wait(life.heap, ticket) != 0)
            return false;
        life.acknowledged[life.events.size()] = ticket;
        return true;
    }

    bool abort(Life &life)
    {
        if (cairn_persist_abort(life.heap) != 0)
            return false;
        life.slots.note_abort(stats_of(life.heap).last_commit);
        return true;
    }

    bool reopen(Life &life, const std::string &path)
    {
        if (!commit(life, 1) || cairn_persist_close(std::exchange(life.heap, nullptr)) != 0)
            return false;
        life.heap = open_heap(path, options());
        return life.heap != nullptr;
    }

    bool step(Life &life, const Work &work, const std::string &path)
    {
        const size_t changes = 1 + life.slots.draw(12);
        for (size_t j = 0; j < changes; j++)
            if (!life.slots.change(life.heap, work.largest))
                return false;
        switch (life.slots.draw(60)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
            return abort(life);
        case 5:
            return cairn_persist_grow(life.heap, stats_of(life.heap).size_bytes + 65536) == 0;
        case 6:
            return commit(life, 1) && cairn_persist_trim(life.heap) == 0;
        case 7:
            return reopen(life, path);
        case 8:
        case 9:
            return commit(life, work.together) && cairn_persist_checkpoint(life.heap) == 0;
        default:
            return commit(life, work.together);
        }
    }

    // Leaves the heap as a kill would.
    static void leave(Life &life)
    {
        if (life.heap == nullptr)
            return;
        files_close(life.heap);
        life.heap->process = 0;
        cairn_persist_close(std::exchange(life.heap, nullptr));
    }

    void put(const Disk &disk) const
    {
        for (size_t i = 0; i < 3; i++)
            write_file(state() + kSuffixes[i], disk.files[i]);
    }
    std::string state() const { return directory_.file("state"); }

    // Opens the state that a crash behind `events` events left, and compares it with the model.
    void judge(const Disk &disk, const Life &life, size_t events)
    {
        states_++;
        put(disk);
        const char *why = nullptr;
        cairn_persist *heap = open_heap(state(), options(), &why);
        ASSERT_NE(heap, nullptr) << why << " after " << events << " events";
        const uint64_t number = stats_of(heap).last_commit;
        EXPECT_GE(number, Life::last_at(life.acknowledged, events)) << "lost, after " << events;
        EXPECT_LE(number, Life::last_at(life.begun, events)) << "invented, after " << events;
        EXPECT_TRUE(life.slots.knows(number)) << number << ", " << events;
        if (life.slots.knows(number)) {
            EXPECT_EQ(Slots::read(heap), life.slots.contents(number)) << number << ", " << events;
        }
        EXPECT_EQ(check(heap), "");
        Life end(life.slots);
        end.heap = heap;
        leave(end);
    }

    // Continues from a crash of `past` behind `cut` events. The program reads `found`, which need
    // not be durable: `disk` may have pending writes. Then this life is cut as well.
    void live_on(const Life &past, size_t cut, const Disk &found, Pending disk, size_t depth)
    {
        lives_++;
        put(found);
        Life life(past, cut);
        g_sync_fails = random_() % 6 == 0 ? random_() % 12 : SIZE_MAX;
        g_events = &life.events;
        life.heap = open_heap(state(), options());
        if (life.heap != nullptr) {
            life.note_found(stats_of(life.heap).last_commit);
            const Work work = {GetParam().largest, 1 + random_() % 6, 1 + random_() % 4};
            for (size_t i = 0; i < work.commits && step(life, work, state()); i++)
                ;
        }
        leave(life);
        g_events = nullptr;
        g_sync_fails = SIZE_MAX;
        EXPECT_TRUE(life.begun.size() > 1 || failed(life.events)) << "refused after " << cut;
        const size_t stride = 1 + life.events.size() / 12;
        for (size_t i = 0; i < life.events.size() && !HasFailure(); i++) {
            disk.add(life.events[i], random_);
            if ((i + cut) % stride == 0)
                judge_behind(disk, life, i + 1, 4, depth + 1);
        }
    }

    static bool failed(const std::vector<Event> &events)
    {
        return std::any_of(events.begin(), events.end(), [](auto &event) { return event.failed; });
    }

    void judge_behind(const Pending &pending, const Life &life, size_t events, size_t most,
                      size_t depth)
    {
        const size_t writes = pending.writes.size();
        if (writes <= 16 && (size_t{1} << writes) <= most / 2) {
            for (uint64_t subset = 0; subset >> writes == 0 && !HasFailure(); subset++)
                judge(pending.whole(subset), life, events);
        } else {
            judge(pending.whole(0), life, events);
            judge(pending.whole(~uint64_t{0}), life, events);
            for (size_t i = 2; i < most / 2 && !HasFailure(); i++)
                judge(pending.whole(random_()), life, events);
        }
        for (size_t i = 0; i < most / 2 && writes > 0 && !HasFailure(); i++) {
            const Disk disk = pending.torn(random_);
            judge(disk, life, events);
            if (depth < kLivesMost && random_() % kLifeEach == 0 && !HasFailure())
                live_on(life, events, disk, {disk, {}}, depth);
        }
        if (depth < kLivesMost && random_() % (kLifeEach / 4) == 0 && !HasFailure())
            live_on(life, events, pending.whole(~uint64_t{0}), pending, depth);
    }

    static constexpr size_t kLivesMost = 3;
    static constexpr size_t kLifeEach = 64;
    Directory directory_;
    std::mt19937_64 random_;
    size_t states_ = 0, lives_ = 0;
};

TEST_P(Crash, EveryStateIsACommit)
{
    const size_t states = number_from("CAIRN_PERSIST_STATES", 200);
    const std::string path = directory_.file();
    Life life{Slots(seed())};
    ASSERT_NE(life.heap = open_heap(path, options()), nullptr);
    ASSERT_TRUE(Slots::set_up(life.heap));
    life.slots.note_commit(1);
    ASSERT_EQ(cairn_persist_commit(life.heap), 0);
    Pending pending;
    for (size_t i = 0; i < 3; i++)
        pending.durable.files[i] = read_file(path + kSuffixes[i]);
    life.begun[0] = life.acknowledged[0] = 1;
    g_events = &life.events;
    const Work work = {GetParam().largest, GetParam().commits, GetParam().together};
    for (size_t i = 0; i < work.commits; i++)
        ASSERT_TRUE(step(life, work, path));
    g_events = nullptr;
    cairn_persist_close(life.heap);

    const size_t most = std::max<size_t>(4, states / 2 / (life.events.size() + 1));
    const size_t stride = std::max<size_t>(1, 8 * life.events.size() / states);
    while (states_ < states && !HasFailure()) {
        Pending disk = pending;
        for (size_t i = 0; i < life.events.size() && !HasFailure(); i++) {
            disk.add(life.events[i], random_);
            if ((i + seed()) % stride == 0)
                judge_behind(disk, life, i + 1, most, 0);
        }
    }
    printf("%zu events, %zu states, %zu lives\n", life.events.size(), states_, lives_);
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

} // namespace persist_crash_test
