/* Pages: a buffer that grows, gives its consumed start back, and reads zero where it is new. */
#include <cairn/pages.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    const size_t page = 4096;
    size_t size = 4 * page;
    char *buffer = cairn_pages_map(size, page, CAIRN_PAGES_ZERO);
    if (buffer == NULL)
        return 1;
    for (int i = 0; i < 8; i++) {
        memset(buffer + size - 8, 'x', 8);
        char *grown = cairn_pages_remap(buffer, size, 2 * size, page, CAIRN_PAGES_ZERO);
        if (grown == NULL || grown[size - 1] != 'x' || grown[size] != 0 || grown[2 * size - 1] != 0)
            return 1;
        buffer = grown;
        size *= 2;
    }
    printf("%zu KiB\n", size / 1024);

    /* The first half is consumed: its pages go, the rest stays where it is. */
    if (cairn_pages_unmap(buffer, size / 2) != 0 || buffer[size / 2] != 0)
        return 1;
    if (cairn_pages_unmap(buffer + size / 2, size / 2) != 0)
        return 1;
    cairn_pages_purge(0); /* nothing of it is kept */
    return 0;
}
