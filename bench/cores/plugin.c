/* A plugin for qemu-x86_64 that simulates a machine of many cores, and counts the cache lines that
 * its cores take from each other and the locked instructions. See README.md.
 *
 * Arguments: out=FILE; alloc=TEXT, a part of the allocator's file name; low=OFFSET,high=OFFSET, the
 * part of that file that is the allocator; cores=N; quantum=CYCLES; cache=KIB; pause=CYCLES;
 * lock=WORD:LOW:HIGH, the offsets in the allocator's file of a lock and of the function that takes
 * it, in hexadecimal. The program talks to the plugin by system calls: see requests.h. */
#define _GNU_SOURCE
#include "requests.h"
#include "simulator.h"

#include <inttypes.h>
#include <qemu-plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { RANGES_MAX = 4096, CLOCK_GHZ = 3, PRIVATE_QUANTA = 15, YIELD_PAUSES = 10 };

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

struct totals totals;
bool counting, ended;
unsigned cores = 16;
uint64_t quantum = 100, end_clock, start_clock;
struct block *blocks;
struct hold holds[HOLD_SITES];

static uint64_t pause_cycles = 40;
static const char *out_path = "cores.out", *allocator_name = "?";
static uint64_t part_low, part_high = UINT64_MAX; /* of the allocator's file */
static uint64_t allocator_base;
static uint64_t cleared_by_next; /* of the thread that is being made */

/* The watched lock. */
static uint64_t lock_word, lock_low, lock_high;
static struct {
    struct thread *by;
    uint64_t since, site;
} held;

/* Mapped ranges, and whose code they have. */
static struct {
    uint64_t low, high;
    enum code_owner owner;
} ranges[RANGES_MAX];
static unsigned ranges_count;

static void plugin_add_range(uint64_t low, uint64_t high, enum code_owner owner)
{
    ranges[ranges_count].low = low;
    ranges[ranges_count].high = high;
    ranges[ranges_count++].owner = owner;
}

/* A mapping of the allocator's file: a part of it may be other code. */
static void plugin_add_allocator(uint64_t low, uint64_t high, uint64_t offset)
{
    if (allocator_base == 0)
        allocator_base = low;
    uint64_t from = part_low > offset ? part_low - offset : 0, to = part_high - offset;
    if (to > high - low)
        to = high - low;
    if (from >= to || part_high <= offset) {
        plugin_add_range(low, high, OTHER);
        return;
    }
    if (from != 0)
        plugin_add_range(low, low + from, OTHER);
    if (to < high - low)
        plugin_add_range(low + to, high, OTHER);
    plugin_add_range(low + from, low + to, ALLOCATOR);
}

static void plugin_read_maps(void)
{
    char text[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t program = qemu_plugin_start_code();
    ranges_count = 0;
    while (maps && fgets(text, sizeof text, maps) && ranges_count < RANGES_MAX - 3) {
        uint64_t low, high, offset;
        char name[512] = "";
        if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %511s", &low, &high,
                   &offset, name) < 3)
            continue;
        if (strstr(name, allocator_name))
            plugin_add_allocator(low, high, offset);
        else
            plugin_add_range(low, high, low <= program && program < high ? PROGRAM : OTHER);
    }
    if (maps)
        fclose(maps);
}

static enum code_owner plugin_owner_of(uint64_t address)
{
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < ranges_count; i++)
            if (address - ranges[i].low < ranges[i].high - ranges[i].low)
                return ranges[i].owner;
        plugin_read_maps();
    }
    return OTHER;
}

/* How long the watched lock is held, by the place of the call that took it. */
static void plugin_watch_lock(struct thread *thread)
{
    uint32_t state = *(volatile uint32_t *)(allocator_base + lock_word);
    if (state != 0 && held.by == NULL) {
        held.by = thread;
        held.since = thread->clock;
        held.site = 0;
    } else if (state == 0 && held.by) {
        uint64_t cycles = held.by == thread ? thread->clock - held.since : 0;
        unsigned i = 0;
        while (i < HOLD_SITES - 1 && holds[i].count != 0 && holds[i].site != held.site)
            i++;
        if (counting) {
            holds[i].site = held.site;
            holds[i].count++;
            holds[i].cycles += cycles;
            if (cycles > holds[i].longest)
                holds[i].longest = cycles;
        }
        held.by = NULL;
    }
}

static void plugin_on_block(unsigned index, void *data)
{
    struct thread *thread = turns_threads[index];
    struct block *block = data;
    if (ended)
        return;
    if (turns_holder != thread)
        turns_take(thread);
    if (turns_holder != thread)
        return;
    if (block->owner != OTHER)
        thread->owner = block->owner;
    if (held.by == thread && held.site == 0 &&
        block->address - allocator_base - lock_low >= lock_high - lock_low)
        held.site = block->address;
    thread->clock += block->instructions;
    if (counting) {
        totals.instructions[thread->owner] += block->instructions;
        block->runs++;
    }
    /* A thread that uses no line of another core need not interleave finely. */
    if (thread->clock > thread->limit &&
        (thread->shared || thread->clock > thread->limit + PRIVATE_QUANTA * quantum))
        turns_next(thread);
}

static void plugin_on_memory(unsigned index, qemu_plugin_meminfo_t info, uint64_t address,
                             void *data)
{
    struct thread *thread = turns_threads[index];
    if (ended || turns_holder != thread)
        return;
    bool is_store = qemu_plugin_mem_is_store(info);
    uint64_t last = address + ((uint64_t)1 << qemu_plugin_mem_size_shift(info)) - 1;
    totals.accesses += counting;
    for (uint64_t line = address >> 6; line <= last >> 6; line++)
        lines_access(thread, line, is_store, (uint32_t)(uintptr_t)data);
    if (lock_word != 0 && allocator_base != 0 && address == allocator_base + lock_word && is_store)
        plugin_watch_lock(thread);
}

static void plugin_on_locked(unsigned index, void *data)
{
    struct thread *thread = turns_threads[index];
    if (ended || turns_holder != thread)
        return;
    thread->clock += COST_LOCKED;
    thread->shared = true;
    if (counting) {
        totals.locked[thread->owner]++;
        codes[(uintptr_t)data].locked++;
    }
}

static void plugin_on_pause(unsigned index, void *data)
{
    struct thread *thread = turns_threads[index];
    (void)data;
    if (ended || turns_holder != thread)
        return;
    thread->clock += pause_cycles;
    thread->shared = true;
    totals.pauses += counting;
}

enum instruction { PLAIN, LOCKED, PAUSE };

/* Locked: with the prefix, or an exchange with memory. */
static enum instruction plugin_decode(const uint8_t *bytes, size_t size)
{
    static const uint8_t prefixes[] = {0x66, 0xF2, 0xF3, 0x2E, 0x3E, 0x26, 0x36, 0x64, 0x65, 0x67};
    size_t i = 0;
    bool repeats = false;
    for (; i < size; i++) {
        if (bytes[i] == 0xF0)
            return LOCKED;
        repeats = repeats || bytes[i] == 0xF3;
        if (memchr(prefixes, bytes[i], sizeof prefixes) == NULL)
            break;
    }
    if (i < size && (bytes[i] & 0xF0) == 0x40)
        i++;
    if (i + 1 < size && (bytes[i] == 0x86 || bytes[i] == 0x87) && bytes[i + 1] >> 6 != 3)
        return LOCKED;
    return repeats && i < size && bytes[i] == 0x90 ? PAUSE : PLAIN;
}

static void plugin_on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *translated)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)id;
    pthread_mutex_lock(&lock);
    struct block *block = calloc(1, sizeof *block);
    block->address = qemu_plugin_tb_vaddr(translated);
    block->instructions = (uint32_t)qemu_plugin_tb_n_insns(translated);
    block->owner = plugin_owner_of(block->address);
    block->next = blocks;
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_cb(translated, plugin_on_block, QEMU_PLUGIN_CB_NO_REGS,
                                         block);
    for (size_t i = 0; i < block->instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(translated, i);
        void *code = (void *)(uintptr_t)lines_code(qemu_plugin_insn_vaddr(instruction));
        enum instruction kind =
            plugin_decode(qemu_plugin_insn_data(instruction), qemu_plugin_insn_size(instruction));
        if (kind != PLAIN)
            qemu_plugin_register_vcpu_insn_exec_cb(
                instruction, kind == LOCKED ? plugin_on_locked : plugin_on_pause,
                QEMU_PLUGIN_CB_NO_REGS, code);
        qemu_plugin_register_vcpu_mem_cb(instruction, plugin_on_memory, QEMU_PLUGIN_CB_NO_REGS,
                                         QEMU_PLUGIN_MEM_RW, code);
    }
    pthread_mutex_unlock(&lock);
}

static void plugin_answer(struct thread *thread, uint64_t request, uint64_t first, uint64_t second)
{
    switch (request) {
    case SIMULATOR_START:
        counting = true;
        start_clock = thread->clock;
        break;
    case SIMULATOR_STOP:
        counting = false;
        if (thread->clock > end_clock)
            end_clock = thread->clock;
        result_write(out_path, first, second);
        break;
    case SIMULATOR_END:
        turns_end_all();
        break;
    case SIMULATOR_PLACE:
        turns_place(thread, (unsigned)first);
        break;
    case SIMULATOR_CORE:
        *(uint32_t *)first = thread->core;
        break;
    case SIMULATOR_CLOCK:
        *(uint64_t *)first = thread->clock / CLOCK_GHZ;
        break;
    case SIMULATOR_SLEEP:
        thread->clock += first * CLOCK_GHZ;
        break;
    }
}

/* Whether the system call may block. */
static bool plugin_call_blocks(int64_t number)
{
    static const short blocking[] = {
        SYS_exit,        SYS_nanosleep, SYS_clock_nanosleep, SYS_poll,
        SYS_ppoll,       SYS_read,      SYS_epoll_wait,      SYS_accept,
        SYS_epoll_pwait, SYS_accept4,   SYS_recvmsg,         SYS_wait4,
        SYS_recvfrom,    SYS_select,    SYS_pselect6,        SYS_rt_sigtimedwait,
        SYS_exit_group,
    };
    for (size_t i = 0; i < sizeof blocking / sizeof *blocking; i++)
        if (number == blocking[i])
            return true;
    return false;
}

static bool plugin_call_forks(int64_t number, uint64_t flags)
{
    enum { SHARES_MEMORY = 0x100 }; /* CLONE_VM */
    return number == SYS_fork || number == SYS_vfork ||
           (number == SYS_clone && (flags & SHARES_MEMORY) == 0);
}

static void plugin_on_futex(struct thread *thread, uint64_t futex, uint64_t operation)
{
    enum { WAKE = 1, REQUEUE = 3, WAKE_OPERATION = 5, WAKE_BITS = 10, COMMAND = 127 };
    operation &= COMMAND;
    if (operation == WAKE || operation == WAKE_BITS ||
        (operation >= REQUEUE && operation <= WAKE_OPERATION)) {
        totals.futex_wakes += counting;
        thread->sleepers = turns_sleepers(futex);
        return;
    }
    totals.futex_waits += counting;
    thread->sleeps_on = futex;
    turns_release(thread);
}

static void plugin_on_call(qemu_plugin_id_t id, unsigned index, int64_t number, uint64_t first,
                           uint64_t second, uint64_t third, uint64_t fourth, uint64_t fifth,
                           uint64_t sixth, uint64_t seventh, uint64_t eighth)
{
    enum { CLEARS_AT_END = 0x200000 }; /* CLONE_CHILD_CLEARTID */
    struct thread *thread = turns_threads[index];
    (void)id, (void)fifth, (void)sixth, (void)seventh, (void)eighth;
    thread->released = false;
    if (ended)
        return;
    if (number == SIMULATOR) {
        plugin_answer(thread, first, second, third);
        return;
    }
    if (counting && number >= 0 && number < CALLS)
        totals.calls[number]++;
    thread->clock += COST_CALL;
    thread->arguments[0] = first;
    thread->arguments[1] = second;
    thread->arguments[2] = fourth;
    thread->in_call = number;
    thread->shared = true;
    if (number == SYS_clone)
        cleared_by_next = (first & CLEARS_AT_END) != 0 ? fourth : 0;
    if (number == SYS_munmap || (number == SYS_madvise && third == MADV_DONTNEED))
        thread->clock += lines_forget(first, second) * COST_UNMAPPED_PAGE;
    if (number == SYS_exit)
        turns_end(thread);
    if (number == SYS_sched_yield) {
        thread->clock += pause_cycles * YIELD_PAUSES;
        turns_next(thread);
    } else if (number == SYS_futex) {
        plugin_on_futex(thread, first, second);
    } else if (plugin_call_forks(number, first)) {
        turns_release(thread);
        turns_fork(true);
    } else if (plugin_call_blocks(number)) {
        turns_release(thread);
    }
}

static void plugin_on_return(qemu_plugin_id_t id, unsigned index, int64_t number, int64_t result)
{
    enum { WAKE = 1, COMMAND = 127, ERRORS = 4095 };
    struct thread *thread = turns_threads[index];
    (void)id;
    if (ended)
        return;
    if (plugin_call_forks(number, thread->arguments[0])) {
        if (result == 0) { /* the child, whose other threads are gone, is not simulated */
            ended = true;
            return;
        }
        turns_fork(false);
    }
    thread->in_call = -1;
    if (number == SYS_futex && thread->sleeps_on != 0)
        turns_awake(thread);
    if (thread->released) {
        thread->released = false;
        turns_take(thread);
    }
    /* The woken threads come first, however slow the machine is. */
    if (number == SYS_futex && (thread->arguments[1] & COMMAND) == WAKE && result > 0)
        turns_await_woken(thread, result);
    bool maps = (uint64_t)result < -(uint64_t)ERRORS;
    if (number == SYS_mmap && maps)
        lines_forget((uint64_t)result, thread->arguments[1]);
    if (number == SYS_mremap && maps && (uint64_t)result != thread->arguments[0])
        lines_forget(thread->arguments[0], thread->arguments[1]);
}

static void plugin_on_thread(qemu_plugin_id_t id, unsigned index)
{
    (void)id;
    turns_add(index, cleared_by_next);
}

/* Returns: whether the argument is known. */
static bool plugin_option(const char *name, const char *value)
{
    uint64_t number = strtoull(value, NULL, 0);
    if (strcmp(name, "out") == 0)
        out_path = strdup(value);
    else if (strcmp(name, "alloc") == 0)
        allocator_name = strdup(value);
    else if (strcmp(name, "low") == 0)
        part_low = number;
    else if (strcmp(name, "high") == 0)
        part_high = number;
    else if (strcmp(name, "cores") == 0)
        cores = (unsigned)number;
    else if (strcmp(name, "quantum") == 0)
        quantum = number;
    else if (strcmp(name, "cache") == 0)
        lines_limit((unsigned)number);
    else if (strcmp(name, "pause") == 0)
        pause_cycles = number;
    else if (strcmp(name, "lock") == 0)
        return sscanf(value, "%" SCNx64 ":%" SCNx64 ":%" SCNx64, &lock_word, &lock_low,
                      &lock_high) == 3;
    else
        return false;
    return true;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count,
                                           char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (value == NULL)
            return -1;
        *value++ = '\0';
        if (!plugin_option(arguments[i], value))
            return -1;
    }
    if (cores < 1 || cores > CORES_MAX)
        return -1;
    lines_init();
    qemu_plugin_register_vcpu_init_cb(id, plugin_on_thread);
    qemu_plugin_register_vcpu_tb_trans_cb(id, plugin_on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, plugin_on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, plugin_on_return);
    return 0;
}
