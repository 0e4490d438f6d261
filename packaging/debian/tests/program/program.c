/* Allocates blocks of many sizes with cairn_malloc. strdup copies them with malloc, which is libc's
   own or its replacement. */
#include <cairn/heap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    for (size_t size = 2; size < 100000; size += size / 2) {
        char *block = cairn_malloc(size);
        if (block == NULL)
            return 1;
        memset(block, 'x', size - 1);
        block[size - 1] = 0;
        char *copy = strdup(block);
        if (copy == NULL || strlen(copy) != size - 1 || cairn_malloc_usable_size(block) < size)
            return 1;
        free(copy);
        cairn_free(block);
    }
    puts("program: ok");
    return 0;
}
