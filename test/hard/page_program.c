// Linked statically with libcairn-malloc.a and started by page_size_test with another page size in
// its auxiliary vector. The program prints that page size. Between two calls of getppid, which its
// tracer recognises, it makes the heap reserve, commit, purge and unmap.

#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what, size_t value) {
  fprintf(stderr, "page_program: %s %zu\n", what, value);
  _exit(1);
}

static size_t resident_kib(void) {
  char text[8192];
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) fail("no status", 0);
  text[length] = 0;
  const char *at = strstr(text, "VmRSS:");
  return at ? strtoul(at + 6, NULL, 10) : 0;
}

static void *blocks[5000];

// Frees blocks in stages, until most pages are free; `goes` selects the blocks of each stage.
static void free_some(size_t count, size_t size, bool goes(uintptr_t address, int stage)) {
  for (size_t i = 0; i < count; i++) {
    blocks[i] = malloc(size);
    if (!blocks[i]) fail("no block of", size);
    memset(blocks[i], 1, size);
  }
  const size_t full = resident_kib();
  for (int stage = 0; stage < 16; stage++) {
    for (size_t i = 0; i < count; i++) {
      if (!blocks[i] || !goes((uintptr_t)blocks[i], stage)) continue;
      free(blocks[i]);
      blocks[i] = NULL;
    }
    malloc_trim(0);
  }
  const size_t rest = resident_kib();
  if (rest > full / 2) fail("KiB are resident after a trim, of blocks of", size);
  for (size_t i = 0; i < count; i++) free(blocks[i]);
  malloc_trim(0);
}

static bool two_of_three(uintptr_t address, int stage) {
  return stage == 0 && address / 4096 % 3 != 0;
}

static bool page_by_page(uintptr_t address, int stage) {
  return address >> 16 & 3 && (int)(address >> 12 & 15) == stage;
}

int main(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  syscall(SYS_getppid);
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < 3000; i++) {
      const size_t size = i % 100 == 0 ? 700000 : i % 10 == 0 ? 40000 : i * 2;
      blocks[i] = i % 3 ? malloc(size) : calloc(1, size);
      if (!blocks[i]) fail("no block of", size);
      if (i % 3 == 0 && size && ((char *)blocks[i])[size - 1] != 0) fail("not zero:", size);
      memset(blocks[i], 1, size);
    }
    for (size_t i = 0; i < 3000; i += 10) {
      blocks[i] = realloc(blocks[i], 90000 + i * 300);
      if (!blocks[i]) fail("no realloc to", 90000 + i * 300);
    }
    for (size_t i = 0; i < 3000; i++) free(blocks[i]);
    malloc_trim(0);
    char *large = calloc(1, 30000001);
    for (size_t at = 0; at < 30000001; at += 4096) {
      if (large[at] != 0) fail("not zero at", at);
      large[at] = 1;
    }
    large = realloc(large, 90000001);
    if (!large || large[29999104] != 1) fail("lost by realloc", 0);
    free(large);
    malloc_trim(0);
  }
  free_some(300, 200001, two_of_three);
  // with larger pages no slab has a whole one
  if (page < 65536) free_some(5000, 4000, page_by_page);
  syscall(SYS_getppid);
  for (size_t size = 1; size < 1000000; size = size * 3 + 1) {
    void *block = valloc(size);
    if (!block || (uintptr_t)block % page != 0) fail("valloc is not on a page:", size);
    free(block);
    block = pvalloc(size);
    if (!block || (uintptr_t)block % page != 0) fail("pvalloc is not on a page:", size);
    if (malloc_usable_size(block) < (size + page - 1) / page * page) fail("pvalloc short:", size);
    free(block);
  }
  printf("%zu\n", page);
  return 0;
}
