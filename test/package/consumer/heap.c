// libcairn and libc's malloc in one program: neither heap affects the other.
#include <cairn/heap.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    enum { BLOCKS = 1000 };
    static unsigned char *ours[BLOCKS];
    static unsigned char *theirs[BLOCKS];
    size_t libc_before = mallinfo2().uordblks;
    size_t asked = 0;

    for (size_t i = 0; i < BLOCKS; i++) {
        ours[i] = cairn_malloc(i + 1);
        theirs[i] = malloc(i + 1);
        if (!ours[i] || !theirs[i])
            return 1;
        memset(ours[i], (int)(i & 0x7f), cairn_malloc_usable_size(ours[i]));
        memset(theirs[i], 0xff, i + 1);
        asked += i + 1;
    }
    if (mallinfo2().uordblks - libc_before < asked) {
        fprintf(stderr, "libc's heap did not serve malloc\n");
        return 1;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (ours[i][i] != (i & 0x7f)) {
            fprintf(stderr, "block %zu was overwritten\n", i);
            return 1;
        }
        cairn_free(ours[i]);
        free(theirs[i]);
    }
    return 0;
}
