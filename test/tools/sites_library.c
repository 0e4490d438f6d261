// A library that sites_target.c loads: its one site.
#include <stddef.h>

typedef void *allocator(size_t size);

static allocator *volatile allocate;

__attribute__((noinline)) static void *make(size_t size)
{
    void *block = allocate(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

allocator *library_site(allocator *instead);

// What makes blocks by the site, with this function in malloc's place.
allocator *library_site(allocator *instead)
{
    allocate = instead;
    return make;
}
