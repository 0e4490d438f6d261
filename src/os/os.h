/* The operating system, as little of it as an allocator needs: the only layer that makes system
 * calls.
 *
 * Calls go to the kernel directly, not through libc: errno is never touched, no call is a
 * cancellation point, and all of it works before libc is ready and in any signal context. Functions
 * return a pointer or NULL, or 0 or a negative errno. Sizes and addresses of mappings are multiples
 * of os_page_size(). No locks, no state but what os_init finds and counters.
 *
 * Fault injection (debug builds): os_fault_plan makes the n-th coming call fail, for the tests in
 * test/oom.
 */
#ifndef CAIRN_OS_OS_H
#define CAIRN_OS_OS_H

#include "base/compiler.h"

/* Address space and memory. */
size_t os_page_size(void);           /* 4096 until os_init has asked */
void *os_reserve(size_t size_bytes); /* address space without memory or permission */
void *os_reserve_near(void *hint, size_t size_bytes); /* there if it is free, else anywhere */
bool os_reserve_at(void *start, size_t size_bytes);   /* false when something is there */
int os_commit(void *start, size_t size_bytes); /* reserved: now readable and writable, zero */
void *os_map(size_t size_bytes);               /* readable and writable, zero */
int os_resize(void *start, size_t old_bytes, size_t new_bytes); /* of a mapping, in place */
/* To another place at another size: the kernel says where. NULL when refused: nothing has changed.
 */
void *os_move(void *start, size_t old_bytes, size_t new_bytes);
/* Onto a reservation of the caller's, of the same size. Not moved, the destination is reserved as
 * before, or, OS_LOST, it may be anybody's: then nothing of it must be touched or unmapped. */
enum os_moved { OS_MOVED, OS_KEPT, OS_LOST };
enum os_moved os_move_onto(void *start, size_t size_bytes, void *destination);
/* The same, but the old addresses stay a mapping with the permissions that they
 * had, and empty. Kernels before 5.7 refuse. */
enum os_moved os_move_leaving(void *start, size_t size_bytes, void *destination);
int os_unmap(void *start, size_t size_bytes);
int os_purge(void *start, size_t size_bytes); /* gives the memory back; zero when read again */
int os_trap(void *start,
            size_t size_bytes); /* of a mapping: gives the memory back; any access faults */
size_t os_resident(void *start, size_t size_bytes); /* bytes in memory; swapped ones do not count */
bool os_is_readable(const void *word);              /* aligned; without touching it */
int os_populate(void *start, size_t size_bytes); /* faults pages in at once, where the kernel can */
int os_huge_pages(void *start, size_t size_bytes,
                  bool wanted);                /* transparent huge pages for this range */
int os_divide_huge_page(void *start, size_t size_bytes); /* the one that holds this part of it */
enum os_access { OS_NONE, OS_READ, OS_WRITE }; /* OS_WRITE: read and write */
int os_protect(void *start, size_t size_bytes, enum os_access access);
int os_wipe_in_children(void *start, size_t size_bytes); /* a fork's child reads zeros there */
void os_name(void *start, size_t size_bytes,
             const char *name); /* shown in /proc/self/maps where supported */

/* How often the kernel was asked for or about memory, by this process and those that it was forked
 * off from. */
enum os_call {
    OS_CALL_MAP,     /* mmap */
    OS_CALL_PROTECT, /* mprotect */
    OS_CALL_UNMAP,   /* munmap */
    OS_CALL_ADVISE,  /* madvise, mincore */
    OS_CALL_REMAP,   /* mremap */
    OS_CALL_KINDS,
};
extern hidden_data uint64_t os_calls[OS_CALL_KINDS]; /* atomic */

/* The process and its surroundings. */
void os_init(void);       /* page size and kernel facts; idempotent, any thread */
uint64_t os_now_ms(void); /* monotonic, coarse */
uint64_t os_now_ns(void); /* monotonic */
uint64_t os_date_s(void); /* since 1970 */
uint64_t os_ticks(void);  /* of the processor, the cheapest clock; other processors' differ */
uint64_t os_ticks_in_us(unsigned microseconds); /* about so many */
uint64_t os_now_us(void);                       /* monotonic, fine */
uint64_t os_others_ran_us(void);                /* processor time of the process's other threads */
uint64_t os_entropy(void);
bool os_is_secure(void); /* set-uid and kin: the environment is not to be trusted */
const char *os_environment(const char *name);
/* What the control group allows, 0 for no limit, and how long some task has waited for memory since
 * the start, in the whole system and in the group; 0 where the files are missing. `root` stands
 * before their paths: "" but in tests, and where the host's are elsewhere. */
struct os_group {
    size_t max_bytes;  /* memory.max, or version 1's limit_in_bytes */
    size_t high_bytes; /* memory.high */
    uint64_t system_stall_us;
    uint64_t group_stall_us;
};
void os_read_group(const char *root, struct os_group *group);
int os_read_file(const char *path, char *text,
                 size_t capacity_bytes); /* length, or a negative errno */
void os_sleep_ms(unsigned milliseconds);

/* Threads and fork. */
bool os_has_thread_pointer(
    void); /* false in the resolvers of a static program: thread-local words are not there yet */
typedef void os_thread_end(void *value);
int os_thread_end_register(os_thread_end *handler); /* once a process; 0 or a negative errno */
int os_thread_end_arm(void *value); /* this thread's end calls the handler with `value` */
int os_fork_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
/* A thread that nobody joins, with every signal blocked but libc's own, and this name for tools.
 * libc allocates for it. 0 or a negative errno. */
int os_thread_start(void (*body)(void), const char *name);
/* Whether a thread may be made within malloc's slow path: not where the linker's lock is not to be
 * had twice. */
bool os_may_start_within_malloc(void);

/* Memory faults (SIGSEGV) and stacks. */
enum os_fault_kind { OS_FAULT_READ, OS_FAULT_WRITE, OS_FAULT_UNKNOWN };
struct os_fault {
    const void *address;
    enum os_fault_kind kind;
    uintptr_t instruction;
};
/* True: the fault was the handler's, and is repeated under the action that was there before.
 * Async-signal-safe, and so must the handler be. */
typedef bool os_fault_handler(const struct os_fault *fault);
int os_catch_faults(os_fault_handler *handler); /* once a process; 0 or a negative errno */
/* For writes to pages that are read-only for a while. True: the page is writable now, and the
 * instruction runs again. Asked before the other handler; async-signal-safe. */
typedef bool os_write_handler(const void *address);
int os_catch_writes(os_write_handler *handler); /* once a process; 0 or a negative errno */

uint32_t os_process_id(void);
const char *os_program_name(void); /* without its folder */
/* From now on what goes to stderr goes there, too, after the program has closed it: for the end of
 * programs that do so. Takes a descriptor, which children of exec do not get. Once a process. */
void os_keep_stderr(void);
/* From now on what would go to stderr is appended to this file instead, which is opened for each
 * line; to stderr when that fails. An absolute path, not ended by a zero byte. False: it cannot be
 * opened, or is too long or relative. Before there are threads. */
bool os_report_to(const char *path, size_t length_bytes);

uint32_t os_thread_id(void); /* the kernel's, as tools show it */
/* Before os_stack: may allocate and takes the loader's lock, which os_stack does not. */
void os_stack_prepare(void);
/* At this thread's beginning and end: where its stack lies another one's may have lain, or will. */
void os_stack_forget(void);
/* Return addresses of the caller's callers, innermost first, those within this library left out.
 * From `instruction` on if that is among them (0: all). Returns their number, 0 in programs
 * without a dynamic linker. */
unsigned os_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction);

/* The first of them alone, in some tens of instructions; 0: there is none. */
uintptr_t os_caller(void);

/* Stacks again and again, of one thread at a time: what comes again costs a few loads a frame. Zero
 * at first; whoever calls owns it. Returns the innermost of the caller's callers: what is outside
 * of it are all the others, `depth` together, and its hash is that of their addresses. It stays
 * what it is until the next call. NULL: it cannot tell, ask os_stack. `thread`: a number that no
 * other thread of the process has or had; 0: there is none yet. */
enum { OS_MEMO_DEPTH = 250, OS_MEMO_STEPS = 512, OS_MEMO_PLACES = 1024 };
struct os_stack_step {
    uintptr_t address, stack, frame; /* the caller's */
    uintptr_t outer_at;              /* where the address of the next one was read */
    uintptr_t checked_at, expected;  /* these: see stack_again.c */
    uintptr_t record_at, record_frame;
    struct os_stack_step *outer; /* the next one; NULL: there is none */
    uint64_t hash;               /* of this address and those outside of it */
    uint32_t number;             /* this and `seen`: the memo's owner's; 0 of what is new */
    uint32_t frame_words;        /* from `stack` on, plus 1, to where the next one's frame */
    uint32_t stack_words;        /* pointer and stack were read; 0: not read */
    uint8_t depth;
    bool seen;
    bool by_frame;     /* where the next one is, its frame pointer says */
    bool frame_counts; /* for this or for one further out */
};
enum { OS_MEMO_WAYS = 16, OS_WAY_MOST = 7 };
struct os_stack_way {
    uintptr_t first, second; /* the innermost addresses, by which it is known */
    uint32_t count;
    uint32_t record;          /* from the first one's frame on, where the outermost one's is */
    uint32_t at[OS_WAY_MOST]; /* and where each address is */
    uintptr_t address[OS_WAY_MOST];
};
struct os_stack_memo {
    uintptr_t from, end;             /* a stack that can be read from and to these */
    uint32_t thread;                 /* whose; 0: nobody's */
    uint32_t used;                   /* of the steps; 0, as `end`: nothing is known */
    uint16_t latest[OS_MEMO_PLACES]; /* by address and stack: which step was right the last time */
    uint16_t inside[OS_MEMO_PLACES]; /* by these and the next step */
    struct os_stack_way ways[OS_MEMO_WAYS]; /* through this library */
    struct os_stack_step steps[OS_MEMO_STEPS];
};
struct os_stack_step *os_stack_again(struct os_stack_memo *memo, uint32_t thread);
/* The file that the address was loaded from, and where it was loaded: file offset = address -
 * *base. NULL when the libc cannot tell. Async-signal-safe. */
const char *os_locate(uintptr_t address, uintptr_t *base);

/* A file that code was loaded from, while it is loaded. */
struct os_module {
    uintptr_t base;       /* as os_locate has it */
    const char *path;     /* as the linker has it */
    uintptr_t start, end; /* of its mappings; of the program's, perhaps of some */
    bool is_program;
};
/* False: the libc cannot tell. Async-signal-safe. */
bool os_module_of(uintptr_t address, struct os_module *module);
/* The program itself. */
bool os_module_of_program(struct os_module *module);
/* Where its build id lies, and the length; 0: it has none. As above, and it has to stay loaded. */
enum { OS_BUILD_ID_MOST = 64 };
size_t os_module_build_id(const struct os_module *module, const unsigned char **id);

/* Files: a descriptor or 0, or a negative errno. Reads and writes are whole or fail, interrupted
 * and short ones go on by themselves. */
/* NEW: there must be none yet. SECRET: what is made is for nobody but its user. */
enum os_file_mode {
    OS_FILE_READ,
    OS_FILE_WRITE,
    OS_FILE_CREATE,
    OS_FILE_NEW,
    OS_FILE_CREATE_SECRET,
    OS_FILE_NEW_SECRET,
};
int os_file_open(const char *path, enum os_file_mode mode);
void os_file_close(int file);                                  /* -1 is ignored */
int os_file_path(int file, char *path, size_t capacity_bytes); /* absolute; its length */
/* The same by the name alone, where /proc is not mounted; -ELOOP: it is a symbolic link. */
int os_path_absolute(const char *path, char *to, size_t capacity_bytes);
int os_file_lock(int file, bool exclusive); /* until it is closed; -EBUSY: another has it */
bool os_file_is_nameless(int file);         /* removed, or another one was renamed over it */
int64_t os_file_size(int file);
int os_file_read(int file, void *to, size_t size_bytes, uint64_t offset); /* -ENODATA: too short */
int os_file_write(int file, const void *from, size_t size_bytes, uint64_t offset);
int os_file_truncate(int file, uint64_t size_bytes);
int os_file_extend(int file, uint64_t size_bytes); /* with room on disk where that can be had */
int os_file_punch(int file, uint64_t offset, uint64_t size_bytes); /* a hole: zeros, no room */
int os_file_sync(int file);                                        /* fdatasync */
/* From now on reads of the first `size_bytes` (0: of all) give what the disk holds: what a program
 * that was killed left in memory is written, and what a failed write-back left there is forgotten,
 * as far as the kernel can. */
int os_file_settle(int file, uint64_t size_bytes);
void os_file_start_writing(int file, uint64_t offset, uint64_t size_bytes); /* does not wait */
int os_file_rename(const char *from, const char *to); /* -EEXIST: never over another */
int os_file_remove(const char *path);
int os_directory_sync(const char *path); /* of the directory in which the file at `path` lies */
/* Private pages of the file, in place of what is mapped there. */
int os_file_map(int file, uint64_t offset, void *at, size_t size_bytes, enum os_access access);

/* A file that is written as memory. Room on the disk is allotted first, which makes the file longer
 * if need be and never shorter; then the part is mapped. Unmapped by os_unmap. */
int os_file_allot(int file, uint64_t offset, size_t size_bytes);
void *os_file_share(int file, uint64_t offset, size_t size_bytes); /* NULL: no memory, or refused */
int64_t os_file_size_limit(void); /* of files that this process writes; -1: none */
struct os_file_identity {
    uint64_t device, number;
};
int os_file_identify(int file, struct os_file_identity *identity);
int os_file_move_up(int file);           /* to a high number, which programs seldom close */
int os_file_in_memory(const char *name); /* one without a place */

/* A descriptor of ours in a program that may close any number and use it again. The number is 0 or
 * more, and then ours for as long as os_file_is_own says so. */
struct os_own_file {
    int number; /* atomic: -1 for none */
    struct os_file_identity identity;
};
int os_file_own(struct os_own_file *own, int file); /* moves it up; closes it where that fails */
bool os_file_is_own(const struct os_own_file *own);
int os_file_own_number(struct os_own_file *own); /* becomes -1 where it is not ours any more */
void os_file_close_own(struct os_own_file *own); /* only what is ours */

/* Unix sockets, streams that never block: a descriptor, a number of bytes, 0 at the peer's end, or
 * a negative errno. Closed by os_file_close. */
enum { OS_SOCKET_PATH_MOST = 100, OS_SOCKET_WAITING = 16 };
/* A file of mode 0600. What nobody serves any more is replaced; -EADDRINUSE: somebody does. */
int os_socket_listen(const char *path);
int os_socket_accept(int listener); /* -EPERM: of another user, who is not root; -EAGAIN: none */
int os_socket_receive(int socket, void *to, size_t capacity_bytes); /* -EAGAIN: nothing there */
int os_socket_send(int socket, const void *from, size_t size_bytes);
/* A descriptor that can be read once it was set: a socket, so that setting and clearing it does
 * nothing to a file that has taken its number. */
int os_event_make(void);
void os_event_set(int event);
void os_event_clear(int event);
enum { OS_WAIT_MOST = 16 };
struct os_wait {
    int file;
    bool reads, writes; /* waits for these */
    bool ready;         /* or it failed: the call on it will say */
};
void os_wait_for(struct os_wait *entries, unsigned count, unsigned timeout_ms);

/* What the files are asked to do, for tests (debug builds): called before each kernel call that
 * changes a file, may shorten a write by *size_bytes or refuse the call with a negative errno. */
enum os_file_call { OS_CALL_WRITE, OS_CALL_TRUNCATE, OS_CALL_EXTEND, OS_CALL_PUNCH, OS_CALL_SYNC };
typedef int os_file_watcher(enum os_file_call call, int file, uint64_t offset, const void *data,
                            size_t *size_bytes);
void os_file_watch(os_file_watcher *watcher); /* NULL: nobody */

/* Which pages of a private mapping of a file were written: copied, or, where userfaultfd watches
 * them, written since they were last found. */
struct os_page_range {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
};
int os_userfault_open(void); /* -ENOSYS and others: the kernel has it not, or not for us */
int os_userfault_watch(int userfault, void *start, size_t size_bytes);
int os_pagemap_open(void);
/* What a scan looks for. All but the first protect what they find, so that it is found again only
 * once it was written again. */
enum os_scan {
    OS_SCAN_COPIES, /* copied pages */
    OS_SCAN_FIRST,  /* written ones, and those of the file: OS_PAGE_OF_FILE */
    OS_SCAN_EMPTY,  /* where there is no page; allocates page tables */
    OS_SCAN_AGAIN,  /* written ones, fast; where the two before have not looked, empty ones, too */
};
enum { OS_PAGE_OF_FILE = 1 << 2 }; /* among the categories of OS_SCAN_FIRST */
/* Looks from *from on and moves it to where the next call goes on. The number of ranges found. */
int os_pagemap_scan(int pagemap, uintptr_t *from, uintptr_t end, enum os_scan kind,
                    struct os_page_range *ranges, unsigned capacity);
/* The same of copied pages for kernels before 6.7. */
int os_pagemap_read(int pagemap, uintptr_t *from, uintptr_t end, struct os_page_range *ranges,
                    unsigned capacity);

/* Fault injection: the `skip`-th call from now on and `count - 1` after it fail with -error; count
 * 0 ends the plan. In release builds this does nothing. Returns the number of calls seen since the
 * last plan. */
size_t os_fault_plan(size_t skip, size_t count, int error);
/* The same, but of the `count` calls only the first fails and each `every`-th after it. */
size_t os_fault_plan_every(size_t skip, size_t count, size_t every, int error);

#endif
