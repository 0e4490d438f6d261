"""A change in C and in C++ for each verdict; a test compiles them all."""

BUFFER_MOST = 4096  # on the stack of a program
SNIPPETS = {
    "scope": ("""#include <cairn/scope.h>

void handle(const char *name)
{
    // all that is taken from it ends with this block
    t_scope;
    // instead of strdup and free; t_alloc(n) for malloc(n)
    char *copy = t_strdup(name);
    work_on(copy);
}
""", """#include <cairn/cairn.hpp>

void handle(const char *name)
{
    // all that is taken from it ends with this block
    cairn::scope scope;
    using letters = std::vector<char, cairn::allocator<char>>;
    letters copy(name, name + std::strlen(name) + 1, scope.allocator());
    work_on(copy.data());
}
"""),
    "temporary": ("""void handle(const char *name)
{
    // on the program's own stack: no malloc, no free
    char small[LARGEST];
    size_t size = strlen(name) + 1;
    char *buffer = size <= sizeof small ? small : malloc(size);
    if (buffer == NULL)
        return;
    memcpy(buffer, name, size);
    work_on(buffer);
    if (buffer != small)
        free(buffer);
}
""", """#include <memory_resource>
#include <string>

void handle(const char *name)
{
    // on the program's own stack: new is only called beyond it
    char small[LARGEST];
    std::pmr::monotonic_buffer_resource memory(small, sizeof small);
    std::pmr::string buffer(name, &memory);
    work_on(buffer.data());
}
"""),
    "one at a time": ("""static char *buffer;        // kept; each thread needs its own
static size_t buffer_room;

bool handle(const char *name)
{
    size_t size = strlen(name) + 1;
    // rarely: when one is larger than all before
    if (size > buffer_room) {
        char *larger = realloc(buffer, size);
        if (larger == NULL)
            return false;
        buffer = larger;
        buffer_room = size;
    }
    memcpy(buffer, name, size);
    work_on(buffer);                // no free: the next call uses it again
    return true;
}
""", """#include <vector>

// kept; each thread that comes here needs its own
static std::vector<char> buffer;

void handle(const char *name)
{
    // no new while it has room
    buffer.assign(name, name + std::strlen(name) + 1);
    work_on(buffer.data());
}
"""),
    "FIFO": ("""#include <cairn/fifo.h>

// one thread's: = cairn_fifo_new(NULL), at its start
static cairn_fifo *messages;

struct item *make_item(void)        // instead of malloc
{
    return cairn_fifo_alloc(messages, sizeof(struct item),
                            _Alignof(struct item));
}

void end_item(struct item *item)    // instead of free
{
    cairn_fifo_free(messages, item);
}
""", """#include <cairn/cairn.hpp>

// one thread's: = cairn::make_fifo(), at its start
static cairn::fifo_ptr messages;

item *make_item()                   // instead of new
{
    void *place =
        cairn_fifo_alloc(messages.get(), sizeof(item), alignof(item));
    return place ? ::new (place) item() : nullptr;
}

void end_item(item *object)         // instead of delete
{
    object->~item();
    cairn_fifo_free(messages.get(), object);
}
"""),
    "ring frame": ("""#include <cairn/ring.h>

// one thread's: = cairn_ring_new(NULL), at its start
static cairn_ring *ring;

bool handle(void)
{
    cairn_frame frame = cairn_ring_open(ring);
    if (frame.chunk == NULL)
        return false;
    struct item *item =
        cairn_ring_alloc(ring, sizeof *item, _Alignof(struct item));
    // … all else of the request, from the same frame …
    cairn_ring_seal(ring);
    if (item != NULL)
        work_on(item);
    // instead of a free for each; later, and in any thread
    cairn_ring_release(frame);
    return item != NULL;
}
""", """#include <cairn/cairn.hpp>

// one thread's: = cairn::make_ring(), at its start
static cairn::ring_ptr ring;

void handle()
{
    cairn::ring_frame frame(ring.get());
    item *object = frame.make<item>();
    // … all else of the request, from the same frame …
    cairn::ring_hold hold = frame.seal();
    work_on(object);
// the last hold, in any thread, ends all of it
}
"""),
    "reserve": ("""struct list *grown(struct list *list, size_t wanted)
{
    if (wanted <= list->room)
        return list;
    // At once what most of them reach.
    size_t first = ROOM / sizeof *list->values;
    size_t room = list->room ? 2 * list->room : first;
    if (room < wanted)
        room = wanted;
    int *values = realloc(list->values, room * sizeof *values);
    if (values == NULL)
        return NULL;
    list->values = values;
    list->room = room;
    return list;
}
""", """#include <vector>

std::vector<int> read_all()
{
    std::vector<int> values;
    // at once what most of them reach
    values.reserve(ROOM / sizeof values[0]);
    return values;
}
"""),
    "pins pages": ("""#include <cairn/private_heap.h>

// = cairn_private_heap_new(NULL), at the start
static cairn_private_heap *records;

struct item *make_item(void)        // long-lived blocks share pages
{
    return cairn_private_heap_alloc(records, sizeof(struct item));
}

void end_item(struct item *item)
{
    cairn_private_heap_free(records, item);
}
""", """#include <cairn/cairn.hpp>

// long-lived blocks share pages
static cairn::private_heap records;

cairn::private_heap::pointer<item> make_item()
{
    return records.make_unique<item>();
}
"""),
    "leak": ("""// Nothing frees these blocks. Find the last function that uses one;
// `cairn leaks PID` says which are unreachable.
void end_item(struct item *item)
{
    free(item->name);
    free(item);
}
""", """#include <memory>

// an owner that ends it; nothing does so now
std::unique_ptr<item> make_item()
{
    return std::make_unique<item>();
}
"""),
    "rounding": ("""#include <cairn/pool.h>

// objects lie gapless; or make the structure a little smaller
CAIRN_POOL(item, struct item);

static cairn_pool *items;           // = item_pool_new(NULL), at the start

struct item *make_item(void)
{
    return item_pool_get(items);
}

void end_item(struct item *item)
{
    item_pool_put(items, item);
}
""", """#include <cairn/cairn.hpp>

// objects lie gapless; or make the class a little smaller
static cairn::typed_pool<item> items;

cairn::typed_pool<item>::pointer make_item()
{
    return items.make_unique();
}
"""),
    "hand-over": ("""#include <cairn/fifo.h>

static cairn_fifo *jobs;            // of the thread that makes them

bool start(void)
{
    const cairn_fifo_options options = {.any_thread_free = true};
    jobs = cairn_fifo_new(&options);
    return jobs != NULL;
}

struct item *make_item(void)
{
    return cairn_fifo_alloc(jobs, sizeof(struct item),
                            _Alignof(struct item));
}

void end_item(struct item *item)    // in any thread
{
    cairn_fifo_free(jobs, item);
}
""", """#include <cairn/cairn.hpp>

static cairn::fifo_ptr jobs;        // of the thread that makes them

void start()
{
    cairn_fifo_options options = {};
    options.any_thread_free = true;
    jobs = cairn::make_fifo(options);
}

item *make_item()
{
    void *place =
        cairn_fifo_alloc(jobs.get(), sizeof(item), alignof(item));
    return place ? ::new (place) item() : nullptr;
}

void end_item(item *object)         // in any thread
{
    object->~item();
    cairn_fifo_free(jobs.get(), object);
}
"""),
}
SNIPPETS["pool"] = SNIPPETS["rounding"]


def snippet(kind, numbers):
    """(C, C++) for a verdict, with its numbers."""
    words = {"LARGEST": min(numbers.get("most_bytes", 256), BUFFER_MOST),
             "ROOM": numbers.get("room_bytes", 64)}
    texts = []
    for text in SNIPPETS[kind]:
        for word, value in words.items():
            text = text.replace(word, str(value))
        texts.append(text)
    return tuple(texts)
