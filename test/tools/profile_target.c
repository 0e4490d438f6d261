// A program with known sites, for the tests of cairn profile: keep_small holds 30 MiB in blocks of
// 1000 bytes, keep_large 20 MiB in blocks of 1 MiB, waste frees everything that it allocates. With
// an argument keep_small holds twice as much. Then `stop` stops the program, `churn` lets it free
// and allocate without end, and `fork` lets it fork two workers that each hold 10 more blocks of
// keep_large; with another argument they stop before. `plugin FILE` holds 20 MiB through a library
// (profile_plugin.c), and unloads it.
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int with_workers(bool stops)
{
    for (int worker = 0; worker < 2; worker++)
        if (fork() == 0) {
            if (stops)
                (void)raise(SIGSTOP);
            for (size_t i = 0; i < 10; i++)
                memset(keep_large(), 1, 8);
            return 0;
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}

static int with_plugin(const char *file)
{
    void *plugin = dlopen(file, RTLD_NOW);
    void *(*(*site)(void *(*)(size_t)))(size_t) = NULL;
    if (plugin)
        *(void **)&site = dlsym(plugin, "library_site");
    if (site == NULL)
        return 1;
    void *(*make)(size_t) = site(malloc);
    for (size_t i = 0; i < 20; i++)
        memset(kept[count++] = make(LARGE), 1, 8);
    return dlclose(plugin);
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
    if (argc > 1 && strcmp(argv[1], "fork") == 0)
        return with_workers(argc > 2);
    if (argc > 2 && strcmp(argv[1], "plugin") == 0)
        return with_plugin(argv[2]);
    return argc > 2 ? atoi(argv[2]) : 0;
}
