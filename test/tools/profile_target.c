// A program whose sites are known, for the tests of cairn profile: keep_small holds 30 MiB in
// blocks of 1000 bytes, keep_large 20 MiB in blocks of 1 MiB, waste frees all that it takes. With
// an argument it keeps twice as much in keep_small. Then `stop` stops it, and `churn` has it free
// and allocate without an end.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 1000, LARGE = 1 << 20, MIB = 1 << 20 };

static void *kept[200000];
static size_t count;

__attribute__((noinline)) static void *keep_small(void)
{
    return kept[count++] = malloc(SMALL);
}

__attribute__((noinline)) static void *keep_large(void)
{
    return kept[count++] = malloc(LARGE);
}

__attribute__((noinline)) static void waste(void)
{
    void *volatile block = malloc(5000);
    free(block);
}

static _Noreturn void churn(size_t small)
{
    for (size_t i = 0;; i = (i + 1) % small) {
        free(kept[i]);
        count = i;
        memset(keep_small(), 1, 8);
        waste();
    }
}

int main(int argc, char **argv)
{
    size_t small = (size_t)30 * MIB / SMALL * (argc > 1 ? 2 : 1);
    for (size_t i = 0; i < small; i++)
        memset(keep_small(), 1, 8);
    for (size_t i = 0; i < 20; i++)
        memset(keep_large(), 1, 8);
    for (size_t i = 0; i < 40 * (size_t)MIB / 5000; i++)
        waste();
    if (argc > 1 && strcmp(argv[1], "stop") == 0)
        (void)raise(SIGSTOP);
    if (argc > 1 && strcmp(argv[1], "churn") == 0)
        churn(small);
    return argc > 2 ? atoi(argv[2]) : 0;
}
