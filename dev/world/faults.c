// A program with the memory fault that its argument names, for valgrind to find.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "";
    char *block = malloc(40);
    if (block == NULL)
        return 1;
    memset(block, 1, 40);
    if (strcmp(fault, "overflow") == 0)
        ((volatile char *)block)[40] = 1;
    else if (strcmp(fault, "leak") == 0)
        block = NULL;
    free(block);
    if (strcmp(fault, "after-free") == 0)
        printf("%d\n", ((volatile char *)block)[3]);
    return 0;
}
