// A library that uses the heap before its program is ready: from an IFUNC resolver, while the
// dynamic linker still relocates, and from a constructor that runs before all others. The library
// is linked with -z initfirst, so that constructor runs even before that of a preloaded library.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "early.h"

char *early_library_resolver_blocks[EARLY_BLOCKS];
char *early_library_constructor_blocks[EARLY_BLOCKS];

static int first_answer(void) { return 42; }

__attribute__((used)) static int (*resolve_answer(void))(void) {
  early_allocate(early_library_resolver_blocks);
  return first_answer;
}

int early_library_answer(void) __attribute__((ifunc("resolve_answer")));

__attribute__((constructor)) static void first_of_all(void) {
  early_allocate(early_library_constructor_blocks);
}
