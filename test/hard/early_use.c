// Use of the heap at every early stage of a process: in IFUNC resolvers of a library and of the
// program, while the dynamic linker works and thread-local storage is not in its final state; in
// .preinit_array; in a constructor before all others; and in the program's own constructors. Then
// main finds every block unchanged and frees it.
//
// It must work with functions that are bound at once and with lazy binding, so the program is
// linked both ways.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "early.h"

static char *preinit_blocks[EARLY_BLOCKS];
static char *resolver_blocks[EARLY_BLOCKS];
static char *constructor_blocks[EARLY_BLOCKS];

static void preinit(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  early_allocate(preinit_blocks);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(
    int, char **, char **) = preinit;

static int program_answer_found(void) { return 43; }
__attribute__((used)) static int (*resolve_program_answer(void))(void) {
  early_allocate(resolver_blocks);
  return program_answer_found;
}
int program_answer(void);
int program_answer(void) __attribute__((ifunc("resolve_program_answer")));

__attribute__((constructor(101))) static void early_constructor(void) {
  early_allocate(constructor_blocks);
}

static int check(const char *stage, char **blocks) {
  for (size_t i = 0; i < EARLY_BLOCKS; i++) {
    if (!blocks[i] || !early_is_marked(blocks[i], i)) {
      fprintf(stderr, "block %zu of the stage '%s' is lost\n", i, stage);
      return 1;
    }
    for (size_t other = 0; other < i; other++) {
      if (blocks[other] == blocks[i]) {
        fprintf(stderr, "blocks %zu and %zu of '%s' are the same\n", other, i, stage);
        return 1;
      }
    }
  }
  for (size_t i = 0; i < EARLY_BLOCKS; i++) {
    blocks[i] = realloc(blocks[i], early_size(i) + 5000);
    if (!blocks[i] || !early_is_marked(blocks[i], i)) {
      fprintf(stderr, "block %zu of the stage '%s' is lost by realloc\n", i, stage);
      return 1;
    }
    free(blocks[i]);
  }
  return 0;
}

int main(void) {
  if (program_answer() != 43 || early_library_answer() != 42) return 10;
  void *between = malloc(100);
  int failures = check("resolver of the library", early_library_resolver_blocks) +
                 check("resolver of the program", resolver_blocks) +
                 check("preinit_array", preinit_blocks) +
                 check("initfirst constructor", early_library_constructor_blocks) +
                 check("constructor", constructor_blocks);
  free(between);
  return failures;
}
