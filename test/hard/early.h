// The calls that the early stages of a process make, and the check by main afterwards. Only the
// malloc family is called: a resolver runs before most functions of libc can be used.
#pragma once

#include <stddef.h>
#include <stdlib.h>

#define EARLY_BLOCKS 40

extern char *early_library_resolver_blocks[EARLY_BLOCKS];
extern char *early_library_constructor_blocks[EARLY_BLOCKS];
int early_library_answer(void);

// From 8 bytes to 600 KB: small, medium and large blocks.
static inline size_t early_size(size_t index) { return (size_t)8 << (index * 2 / 5); }

static inline char early_byte(size_t index) { return (char)(index * 7 + 1); }

static inline void early_mark(char *block, size_t index) {
  for (size_t at = 0; at < early_size(index); at += 64) block[at] = early_byte(index);
}

static inline int early_is_marked(const char *block, size_t index) {
  for (size_t at = 0; at < early_size(index); at += 64) {
    if (block[at] != early_byte(index)) return 0;
  }
  return 1;
}

// Leaves EARLY_BLOCKS marked blocks, after it freed and resized others.
static inline void early_allocate(char **blocks) {
  for (size_t i = 0; i < EARLY_BLOCKS; i++) {
    free(NULL);
    free(malloc(early_size(i)));
    blocks[i] = i % 3 ? malloc(early_size(i)) : calloc(1, early_size(i));
    if (i % 2) blocks[i] = realloc(blocks[i], early_size(i) + 1);
    if (!blocks[i]) abort();
    early_mark(blocks[i], i);
  }
}
