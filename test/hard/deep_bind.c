// A plug-in that a library opens with RTLD_DEEPBIND, from a folder that only the library knows, as
// php opens its extensions: the plug-in and the program free each other's blocks.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *host_open(const char *name, int mode);

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            const char *error = dlerror();                                                         \
            fprintf(stderr, "deep_bind.c:%d: %s; %s\n", __LINE__, #condition,                      \
                    error ? error : "no error of dlopen's");                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void exchange(void *plugin)
{
    char *(*make)(void) = (char *(*)(void))dlsym(plugin, "plugin_make");
    void (*drop)(void *) = (void (*)(void *))dlsym(plugin, "plugin_drop");
    check(make && drop);
    for (int i = 0; i < 1000; i++) {
        char *block = make();
        check(strcmp(block, "made by the plug-in") == 0);
        block = realloc(block, 5000);
        check(block != NULL);
        drop(block);
        free(make());
        drop(malloc((size_t)i * 100));
    }
}

int main(void)
{
    // The program itself has no run path to the plug-in.
    check(dlopen("libdeep_plugin.so", RTLD_NOW) == NULL && dlerror() != NULL);
    check(host_open("libno_such_plugin.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    check(strstr(dlerror(), "libno_such_plugin.so") != NULL);

    const int modes[] = {RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND,
                         RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND, RTLD_NOW};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        void *plugin = host_open("libdeep_plugin.so", modes[i]);
        check(plugin != NULL);
        exchange(plugin);
        check(dlclose(plugin) == 0);
    }

    void *self = dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND);
    check(self != NULL && dlsym(self, "malloc") == dlsym(RTLD_DEFAULT, "malloc"));
    return 0;
}
