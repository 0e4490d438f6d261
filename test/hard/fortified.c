/* A program built with _FORTIFY_SOURCE=3 that writes as many bytes as malloc_usable_size reports.
 * The compiler knows the requested size, and libc ends the program at a longer write. So the
 * program succeeds only where the two are equal, as in the hardened libraries up to 32 KiB
 * (docs/reference/MESSAGES.md).
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    for (volatile size_t size = 1; size <= 32768; size += size / 8 + 1) {
        size_t asked = size;
        char *block = malloc(asked);
        if (block == NULL)
            return 1;
        memset(block, 1, malloc_usable_size(block));
        volatile char last = block[asked - 1];
        if (last != 1)
            return 1;
        free(block);
    }
    return 0;
}
