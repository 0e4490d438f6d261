// The resident part of the library in a process: at its start, and after typical allocations and
// frees. The kernel maps 64 KiB around each fault in a file, so one function far from the others
// costs as much as all of them. src/CMakeLists.txt has the order that keeps them together.
//
// Nothing allocates before the first figure is taken. The program prints its measurements and exits
// with 1 where one is too large.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SKIPPED = 77,
    FAILED = 99,
    WINDOW_KIB = 64,
    START_MOST_KIB = WINDOW_KIB,
    CODE_MOST_KIB = 2 * WINDOW_KIB,
    CONSTANTS_MOST_KIB = WINDOW_KIB, // the linker reads and writes about 36
};

// Resident KiB of the mappings of `path` with these permissions.
static long resident_kib(const char *path, const char *permissions)
{
    static char text[1 << 18];
    size_t length = 0;
    ssize_t got;
    int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = '\0';
    long sum = 0;
    int ours = 0;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        char *address_end;
        strtoul(line, &address_end, 16);
        if (*address_end == '-') {
            ours = strstr(line, path) && strstr(line, permissions);
        } else if (ours && strncmp(line, "Rss:", 4) == 0) {
            sum += strtol(line + 4, NULL, 10);
        }
    }
    return sum;
}

// Runs this program again on a copy of the library that is in the page cache in single pages: newer
// kernels keep data that was just written or read ahead in larger pieces, and map these as a whole.
static void run_on_a_copy(const char *library, char **arguments)
{
    char path[] = "resident_copy_XXXXXX", full[4096];
    static char bytes[4096];
    int from = open(library, O_RDONLY | O_CLOEXEC), to = mkstemp(path);
    ssize_t length;
    while (from >= 0 && to >= 0 && (length = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, (size_t)length) != length)
            _exit(FAILED);
    if (to < 0 || fsync(to) != 0 || !realpath(path, full) ||
        posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED) != 0 ||
        posix_fadvise(to, 0, 0, POSIX_FADV_RANDOM) != 0)
        _exit(FAILED);
    for (off_t at = 0; pread(to, bytes, sizeof bytes, at) > 0;)
        at += (off_t)sizeof bytes;
    close(to);
    pid_t child = fork();
    if (child == 0) {
        setenv("LD_PRELOAD", full, 1);
        setenv("CAIRN_TEST_SUBJECT", full, 1);
        setenv("CAIRN_TEST_COPIED", "1", 1);
        execv("/proc/self/exe", arguments);
        _exit(FAILED);
    }
    int status = 0;
    waitpid(child, &status, 0);
    unlink(full);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : FAILED);
}

// Whether the kernel maps a window of the usual size around a fault. It can be configured to map
// more, and some file systems do.
static int maps_a_window(const char *path)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) != 0)
        return 0;
    char *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (bytes == MAP_FAILED)
        return 0;
    *(volatile char *)(bytes + about.st_size / 2);
    const long mapped = resident_kib(path, "r--s");
    munmap(bytes, (size_t)about.st_size);
    return mapped > 0 && mapped <= WINDOW_KIB;
}

static void *work(void *unused)
{
    enum { SLOTS = 500, ROUNDS = 20000, MOST = 3000, SMALL_BLOCKS = 5000, GROWN_BYTES = 1 << 20 };
    static __thread void *slots[SLOTS];
    static __thread void *small[SMALL_BLOCKS];
    unsigned state = 1;
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1664525 + 1013904223;
        void **slot = &slots[state % SLOTS];
        const size_t size = (state >> 8) % MOST;
        switch (i % 4) {
        case 0:
            *slot = realloc(*slot, size + 1);
            break;
        case 1:
            free(*slot), *slot = calloc(1, size);
            break;
        default:
            free(*slot), *slot = malloc(size);
        }
        if (i % 1000 == 0)
            free(malloc(200000));
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        small[i] = malloc(8);
    for (int i = 0; i < SMALL_BLOCKS; i++)
        free(small[i]);
    void *grown = NULL;
    for (size_t bytes = 1 << 10; bytes <= GROWN_BYTES; bytes += bytes / 4)
        grown = realloc(grown, bytes);
    free(grown);
    return unused;
}

static int too_much(const char *when, long kib, long most_kib)
{
    printf("code %s: %ld KiB resident, at most %ld\n", when, kib, most_kib);
    return kib > most_kib;
}

int main(int count, char **arguments)
{
    (void)count;
    const char *library = getenv("CAIRN_TEST_SUBJECT");
    if (!getenv("CAIRN_TEST_COPIED"))
        run_on_a_copy(library, arguments);
    const long code = resident_kib(library, "r-xp");
    if (sysconf(_SC_PAGESIZE) != 4096 || code == 0 || !maps_a_window(library)) {
        printf("skipped: this kernel maps no windows of %d KiB around a fault\n", WINDOW_KIB);
        return SKIPPED;
    }
    int failed = too_much("at the start", code, START_MOST_KIB);
    pthread_t thread;
    work(NULL);
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_join(thread, NULL);
    failed |= too_much("after ordinary work", resident_kib(library, "r-xp"), CODE_MOST_KIB);
    if (!getenv("CAIRN_TEST_HARDENED"))
        failed |= too_much("and constants", resident_kib(library, "r--p"), CONSTANTS_MOST_KIB);
    return failed;
}
