// libcairn-malloc: the program's malloc is Cairn's. cairn_free dies of a block that is not, so
// giving it malloc's blocks proves where they came from; getline shows that libc itself uses the
// same heap.
#include <cairn/heap.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    cairn_free(malloc(48));
    cairn_free(calloc(3, 100));
    cairn_free(realloc(malloc(10), 100000));
    cairn_free(aligned_alloc(256, 1024));

    char text[] = "one line\n";
    FILE *file = fmemopen(text, sizeof text - 1, "r");
    char *line = NULL;
    size_t capacity = 0;
    if (!file || getline(&line, &capacity, file) != 9)
        return 1;
    fclose(file);
    cairn_free(line);
    return 0;
}
