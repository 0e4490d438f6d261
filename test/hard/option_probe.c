// A program that uses the heap a little and prints whether the kernel considers it privileged. The
// program is linked with the static library, because LD_PRELOAD does not affect a set-uid program.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

int main(void) {
  void *block = malloc(100);
  if (!block) return 1;
  memset(block, 1, 100);
  free(realloc(block, 100000));
  printf("%d\n", getauxval(AT_SECURE) != 0);
  return 0;
}
