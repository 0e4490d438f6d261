// A library that profile_target.c loads, with one call site that allocates.
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

// Returns the function that makes blocks at the site, with `instead` in place of malloc.
allocator *library_site(allocator *instead)
{
    allocate = instead;
    return make;
}
