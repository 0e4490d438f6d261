// Linked with the static library: a set-uid program is not to be reached by LD_PRELOAD. It uses
// the heap a little and tells whether the kernel considers it privileged.

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
