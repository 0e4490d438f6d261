// A library that opens plug-ins by their bare name: they are found by the run path of this library,
// not of the program, so libc's dlopen has to see its caller.
#include <dlfcn.h>

void *host_open(const char *name, int mode);

void *host_open(const char *name, int mode)
{
    void *handle = dlopen(name, mode);
    __asm__ volatile("" : : : "memory"); // so that the call above is not a jump
    return handle;
}
