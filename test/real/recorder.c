/* A library for inspect_truth_test.py. The library is loaded before Cairn's malloc and keeps its
 * own list of all blocks in use, with their usable sizes. After CAIRN_RECORD_UNTIL calls, or at the
 * end of the process, it writes the list to the file CAIRN_RECORD_TO, which it creates, and stops
 * the process. If there are several processes, the first one to create the file does so.
 *
 * Each call holds a lock from its start until the list is changed, and the lock is held while the
 * process is stopped. So no other thread is in the heap then, and the list and the heap are of one
 * instant.
 */
#include <cairn/heap.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 1 << 21, LEFT = 1 };

static struct entry {
    uintptr_t address; /* 0: never used, LEFT: used before */
    size_t bytes;
} entries[ENTRIES];

static bool lock; /* atomic */
static __thread unsigned depth __attribute__((tls_model("initial-exec")));
static long calls_left = -1; /* lock: -1 before the first call, 0 after the last */

/* Takes the lock. Cairn may call itself within a call, for example to register the end of a
 * thread. */
static void enter(void)
{
    if (depth++ == 0)
        while (__atomic_exchange_n(&lock, true, __ATOMIC_ACQUIRE))
            sched_yield();
}

static struct entry *place_of(uintptr_t address, bool to_add)
{
    size_t place = address / 8 * 0x9e3779b97f4a7c15u >> 43;
    for (;; place = (place + 1) % ENTRIES) {
        struct entry *entry = &entries[place];
        if (entry->address == address || entry->address == 0 || (to_add && entry->address == LEFT))
            return entry;
    }
}

static void write_list(int file)
{
    static char text[1 << 16];
    size_t used = (size_t)snprintf(text, sizeof text, "%d\n", (int)getpid());
    for (size_t i = 0; i < ENTRIES; i++) {
        if (entries[i].address > LEFT)
            used += (size_t)snprintf(text + used, sizeof text - used, "0x%zx %zu\n",
                                     entries[i].address, entries[i].bytes);
        if (used + 64 > sizeof text || i + 1 == ENTRIES) {
            if (write(file, text, used) != (ssize_t)used)
                abort();
            used = 0;
        }
    }
}

/* Writes the list and stops the process. The file gets its final name when it is complete. */
static void stop_here(void)
{
    const char *path = getenv("CAIRN_RECORD_TO");
    char whole[4096];
    int file = path ? open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return;
    write_list(file);
    close(file);
    snprintf(whole, sizeof whole, "%s.whole", path);
    if (rename(path, whole) == 0)
        raise(SIGSTOP); /* this thread holds the lock, and stops before it continues */
}

static void leave(void)
{
    if (depth == 1 && calls_left != 0) {
        const char *until = calls_left < 0 ? getenv("CAIRN_RECORD_UNTIL") : NULL;
        calls_left = until ? atol(until) : calls_left - 1;
        if (calls_left == 0)
            stop_here();
    }
    if (--depth == 0)
        __atomic_store_n(&lock, false, __ATOMIC_RELEASE);
}

__attribute__((destructor)) static void end(void)
{
    enter();
    if (calls_left > 0)
        stop_here();
    calls_left = 0;
    leave();
}

static void *list(void *block)
{
    if (block)
        *place_of((uintptr_t)block, true) =
            (struct entry){(uintptr_t)block, cairn_malloc_usable_size(block)};
    return block;
}

static void unlist(const void *block)
{
    struct entry *entry = place_of((uintptr_t)block, false);
    if (block && entry->address == (uintptr_t)block)
        entry->address = LEFT;
}

#define exported __attribute__((visibility("default")))
#define wraps(call)                                                                                \
    do {                                                                                           \
        enter();                                                                                   \
        void *block_ = list(call);                                                                 \
        int saved_ = errno;                                                                        \
        leave();                                                                                   \
        errno = saved_;                                                                            \
        return block_;                                                                             \
    } while (0)

exported void *malloc(size_t size) { wraps(cairn_malloc(size)); }
exported void *calloc(size_t count, size_t size) { wraps(cairn_calloc(count, size)); }
exported void *aligned_alloc(size_t align, size_t size) { wraps(cairn_aligned_alloc(align, size)); }
exported void *memalign(size_t align, size_t size) { wraps(cairn_memalign(align, size)); }
exported void *valloc(size_t size) { wraps(cairn_valloc(size)); }
exported void *pvalloc(size_t size) { wraps(cairn_pvalloc(size)); }

exported int posix_memalign(void **result, size_t align, size_t size)
{
    enter();
    int error = cairn_posix_memalign(result, align, size);
    if (error == 0)
        list(*result);
    leave();
    return error;
}

exported void free(void *block)
{
    enter();
    unlist(block);
    cairn_free(block);
    leave();
}

exported void *realloc(void *block, size_t size)
{
    enter();
    void *moved = cairn_realloc(block, size);
    int saved = errno;
    if (moved || size == 0)
        unlist(block);
    list(moved);
    leave();
    errno = saved;
    return moved;
}

exported void *reallocarray(void *block, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, total);
}

/* C++ functions under their mangled names. No new handler is called, since memory suffices. */
#define news(single, array, parameters, call)                                                      \
    exported void *single parameters;                                                              \
    exported void *array parameters;                                                               \
    exported void *single parameters { wraps(call); }                                              \
    exported void *array parameters { wraps(call); }
#define deletes(single, array, parameters)                                                         \
    exported void single parameters;                                                               \
    exported void array parameters;                                                                \
    exported void single parameters { free(block); }                                               \
    exported void array parameters { free(block); }
#define unused __attribute__((unused))

/* clang-format off */
news(_Znwm, _Znam, (size_t size), cairn_malloc(size))
news(_ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t, (size_t size, unused const void *tag),
     cairn_malloc(size))
news(_ZnwmSt11align_val_t, _ZnamSt11align_val_t, (size_t size, size_t align),
     cairn_memalign(align, size))
news(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t,
     (size_t size, size_t align, unused const void *tag), cairn_memalign(align, size))
deletes(_ZdlPv, _ZdaPv, (void *block))
deletes(_ZdlPvm, _ZdaPvm, (void *block, unused size_t size))
deletes(_ZdlPvRKSt9nothrow_t, _ZdaPvRKSt9nothrow_t, (void *block, unused const void *tag))
deletes(_ZdlPvSt11align_val_t, _ZdaPvSt11align_val_t, (void *block, unused size_t align))
deletes(_ZdlPvmSt11align_val_t, _ZdaPvmSt11align_val_t,
        (void *block, unused size_t size, unused size_t align))
deletes(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_tRKSt9nothrow_t,
        (void *block, unused size_t align, unused const void *tag))
    /* clang-format on */
