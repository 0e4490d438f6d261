// The program cairn-look: see look.h.
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
        fail("no memory for %zu bytes", bytes);
    return memory;
}

void *with_room(void *array, size_t count, size_t *most, size_t bytes)
{
    if (count < *most)
        return array;
    *most = *most ? 2 * *most : 256;
    return take_memory(array, *most * bytes);
}

// Names of the target's are anything; a line is a line.
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
    printf("\tversion=");
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
         "cairn-look leaks PID|CORE [hold] [every]");
}

int main(int argc, char **argv)
{
    static struct target target;
    static struct library library;
    struct look look = {.target = &target, .library = &library};
    const char *command = argc > 1 ? argv[1] : "";
    bool of_address = strcmp(command, "address") == 0, of_leaks = strcmp(command, "leaks") == 0;
    bool hold = false, every = false;
    uint64_t address = 0, pid;
    for (int i = 3; i < argc && of_leaks; i++) {
        hold |= strcmp(argv[i], "hold") == 0;
        every |= strcmp(argv[i], "every") == 0;
    }
    if (of_leaks ? argc < 3 || argc != 3 + hold + every : argc != (of_address ? 4 : 3))
        usage();
    bool of_map = strcmp(command, "map") == 0;
    if (!of_leaks && !of_address && !of_map && strcmp(command, "census") != 0 &&
        strcmp(command, "blocks") != 0 && strcmp(command, "plan") != 0 &&
        strcmp(command, "profile") != 0)
        usage();
    if (of_address && !is_number(argv[3], &address, 0))
        fail("%s: is no address: write it like 0x7f0012345670", argv[3]);
    target.name = argv[2];
    if (is_number(argv[2], &pid, 10) && pid > 0 && pid <= INT32_MAX)
        open_process(&target, (int)pid);
    else
        open_core(&target, argv[2]);
    find_library(&target, &library);
    if (of_address)
        address_report(&look, address);
    else if (of_leaks)
        leaks(&look, hold, every);
    else if (strcmp(command, "blocks") == 0)
        blocks(&look);
    else if (strcmp(command, "plan") == 0)
        plan(&look);
    else if (strcmp(command, "profile") == 0)
        profile(&look);
    else
        census(&look, of_map);
    if (fflush(stdout) != 0)
        fail("the output cannot be written: %s", strerror(errno));
    return 0;
}
