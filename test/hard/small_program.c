// A small program that uses the heap in ordinary ways and checks the results. Other tests run it
// under limits and refusals that are in force from its start. The program exits with 0 on success;
// with the argument "threads" it also does the work in four threads.

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 300

static void fail(const char *what) {
  fprintf(stderr, "small_program: %s (errno %d)\n", what, errno);
  _Exit(1);
}

static void *work(void *unused) {
  unsigned char *slots[SLOTS] = {NULL};
  size_t sizes[SLOTS] = {0};
  unsigned state = 12345;
  for (int i = 0; i < 20000; i++) {
    state = state * 1664525 + 1013904223;
    const size_t at = (state >> 16) % SLOTS;
    if (slots[at]) {
      for (size_t byte = 0; byte < sizes[at]; byte += 997) {
        if (slots[at][byte] != (unsigned char)(at + 1)) fail("a block has changed");
      }
      free(slots[at]);
    }
    const unsigned kind = state >> 26;
    sizes[at] = kind == 0 ? 150000 : kind < 4 ? (state >> 8) % 30000 : (state >> 8) % 1000;
    if (kind % 8 == 1) {
      slots[at] = calloc(1, sizes[at]);
      if (!slots[at]) fail("calloc failed");
      for (size_t byte = 0; byte < sizes[at]; byte++) {
        if (slots[at][byte] != 0) fail("calloc is not zero");
      }
    } else {
      slots[at] = malloc(sizes[at]);
      if (!slots[at]) fail("malloc failed");
    }
    memset(slots[at], (int)(at + 1), sizes[at]);
    if (kind % 8 == 2) {
      sizes[at] = sizes[at] / 2 + 100;
      slots[at] = realloc(slots[at], sizes[at]);
      if (!slots[at]) fail("realloc failed");
      memset(slots[at], (int)(at + 1), sizes[at]);
    }
    if (i % 5000 == 4999) malloc_trim(0);
  }
  // A larger block, grown in steps.
  size_t size = 100000;
  unsigned char *large = malloc(size);
  while (large && size < 2000000) {
    memset(large, 9, size);
    unsigned char *grown = realloc(large, size * 3 / 2);
    if (!grown) fail("realloc of a large block failed");
    if (grown[size - 1] != 9) fail("realloc lost the contents");
    size = size * 3 / 2;
    large = grown;
  }
  if (!large) fail("malloc of a large block failed");
  free(large);
  for (size_t at = 0; at < SLOTS; at++) free(slots[at]);
  return unused;
}

int main(int argc, char **argv) {
  work(NULL);
  if (argc > 1 && strcmp(argv[1], "threads") == 0) {
    pthread_t threads[4];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    for (int i = 0; i < 4; i++) {
      if (pthread_create(&threads[i], &attributes, work, NULL) != 0) fail("no thread");
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  }
  work(NULL);
  return 0;
}
