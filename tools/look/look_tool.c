// The program cairn-look: arguments, memory and the line of the target. look.h describes the
// program.
#include "look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

noreturn void fail(const char *sentence, ...)
{
    va_list arguments;
    va_start(arguments, sentence);
    vfprintf(stderr, sentence, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

void *take_memory(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);
    if (memory == NULL)
        fail("out of memory: %zu bytes refused", bytes);
    return memory;
}

void *with_room(void *array, size_t count, size_t *most, size_t bytes)
{
    if (count < *most)
        return array;
    *most = *most ? 2 * *most : 256;
    return take_memory(array, *most * bytes);
}

void sort(void *array, size_t count, size_t bytes, int (*compare)(const void *, const void *))
{
    if (count > 0)
        qsort(array, count, bytes, compare);
}

// Prints a name of the target, with control characters replaced so that a line stays a line.
void print_clean(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' ? '?' : *text);
}

void print_target(struct look *look)
{
    const struct target *target = look->target;
    const struct library *library = look->library;
    printf("target\tkind=%s", target->pid ? "process" : "core");
    if (target->pid)
        printf("\tpid=%d\tstate=%c\tstopped=%d", target->pid, target->state,
               target->state == 'T' || target->state == 't');
    else
        printf("\tcore_bytes=%" PRIu64 "\tmissing_bytes=%" PRIu64, target->core_bytes,
               target->core_missing);
    printf("\tlacks_map=%d\tis_from_file=%d\tversion=", look->lacks_map, library->is_from_file);
    print_clean(library->version);
    printf("\thardening=%u\tother_libraries=%zu\tprogram=", library->heap.hardening,
           library->others);
    print_clean(target->program);
    printf("\tlibrary=");
    print_clean(library->path);
    putchar('\n');
}

static bool is_number(const char *text, uint64_t *value, int base)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, base);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static noreturn void usage(void)
{
    fail("usage: cairn-look census|map|blocks|plan|profile PID|CORE, "
         "cairn-look address PID|CORE ADDRESS, "
         "cairn-look pointers PID|CORE ADDRESS [every], "
         "cairn-look leaks PID|CORE [hold] [every], "
         "cairn-look at-end REPORT PROGRAM [ARGUMENT]...");
}

int main(int argc, char **argv)
{
    static struct target target;
    static struct library library;
    struct look look = {.target = &target, .library = &library};
    const char *command = argc > 1 ? argv[1] : "";
    bool of_leaks = strcmp(command, "leaks") == 0, of_pointers = strcmp(command, "pointers") == 0;
    bool of_address = strcmp(command, "address") == 0 || of_pointers;
    bool hold = false, every = false;
    uint64_t address = 0, pid;
    if (strcmp(command, "at-end") == 0 && argc > 3)
        return leaks_at_end(argv[2], argv + 3);
    for (int i = 3; i < argc && of_leaks; i++) {
        hold |= strcmp(argv[i], "hold") == 0;
        every |= strcmp(argv[i], "every") == 0;
    }
    if (of_pointers && argc == 5 && strcmp(argv[4], "every") == 0)
        every = true;
    int expected = 3 + of_address + hold + every;
    if (argc != expected)
        usage();
    bool of_map = strcmp(command, "map") == 0;
    if (!of_leaks && !of_address && !of_map && strcmp(command, "census") != 0 &&
        strcmp(command, "blocks") != 0 && strcmp(command, "plan") != 0 &&
        strcmp(command, "profile") != 0)
        usage();
    if (of_address && !is_number(argv[3], &address, 0))
        fail("%s: not an address: write it like 0x7f0012345670", argv[3]);
    target.name = argv[2];
    if (is_number(argv[2], &pid, 10) && pid > 0 && pid <= INT32_MAX)
        open_process(&target, (int)pid);
    else
        open_core(&target, argv[2]);
    find_library(&target, &library);
    // Without the table of classes, which headers.c learns, the map is of no use.
    look.lacks_map =
        target.core_missing > 0 && (library.class_bytes[0] == 0 || !has_whole_map(&look));
    if (of_pointers)
        pointers(&look, address, every);
    else if (of_address)
        address_report(&look, address);
    else if (of_leaks)
        leaks(&look, hold ? LEAKS_HOLD : LEAKS_LOOK, every);
    else if (strcmp(command, "blocks") == 0)
        blocks(&look);
    else if (strcmp(command, "plan") == 0)
        plan(&look);
    else if (strcmp(command, "profile") == 0)
        profile(&look);
    else
        census(&look, of_map);
    if (fflush(stdout) != 0)
        fail("cannot write the output: %s", strerror(errno));
    return 0;
}
