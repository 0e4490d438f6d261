// A plain C program that checks the state of its process under the malloc: errno at the start of
// main, threads, descriptors, signal handlers, alternate stacks, locked memory. Each state that a C
// program does not expect is reported on stderr; the exit code is the number of reports.
//
// The program first runs itself again with descriptors 0 to 2 only, so that all others are the
// malloc's.

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int complaints;

static void complain(const char *what, long value) {
  fprintf(stderr, "census: %s: %ld\n", what, value);
  complaints++;
}

static long entries_of(const char *directory) {
  DIR *open_directory = opendir(directory);
  long count = 0;
  while (open_directory && readdir(open_directory)) count++;
  if (open_directory) closedir(open_directory);
  return count - 2;
}

static unsigned long long status_field(const char *field, int base) {
  char line[256];
  unsigned long long value = ~0ull;
  FILE *status = fopen("/proc/self/status", "re");
  while (status && fgets(line, sizeof line, status)) {
    const size_t length = strlen(field);
    if (strncmp(line, field, length) == 0) value = strtoull(line + length, NULL, base);
  }
  if (status) fclose(status);
  return value;
}

static void *work(void *unused) {
  void *blocks[1000];
  for (size_t round = 0; round < 20; round++) {
    for (size_t i = 0; i < 1000; i++) {
      blocks[i] = malloc(i * 37 + 1);
      if (!blocks[i]) abort();
      memset(blocks[i], 1, i * 37 + 1);
    }
    for (size_t i = 0; i < 1000; i++) free(blocks[i]);
    void *large = malloc((size_t)32 << 20);
    memset(large, 1, (size_t)32 << 20);
    large = realloc(large, (size_t)64 << 20);
    free(large);
  }
  return unused;
}

static void take_census(const char *when) {
  fprintf(stderr, "%s", "");
  const long before = complaints;
  const long threads = entries_of("/proc/self/task");
  const long descriptors = entries_of("/proc/self/fd") - 1;  // except the one that lists them
  if (threads != 1) complain("threads", threads);
  if (descriptors != 3) complain("descriptors", descriptors);
  const unsigned long long caught = status_field("SigCgt:", 16);
  // Signals 32 and 33 belong to the C library.
  if (caught & ~0x180000000ull) complain("caught signals", (long)caught);
  if (status_field("SigBlk:", 16) != 0) complain("blocked signals", 1);
  if (status_field("VmLck:", 10) != 0) complain("locked KiB", (long)status_field("VmLck:", 10));
  if (complaints != before) fprintf(stderr, "census: … %s\n", when);
}

int main(int argc, char **argv) {
  const int errno_at_start = errno;
  if (argc < 2) {
    for (int fd = 3; fd < 256; fd++) close(fd);
    execl("/proc/self/exe", argv[0], "closed", (char *)NULL);
    return 100;
  }
  if (errno_at_start != 0) complain("errno at the start of main", errno_at_start);
  stack_t stack;
  if (sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE)) complain("sigaltstack", 1);
  take_census("at the start");

  work(NULL);
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  take_census("after work in threads");
  return complaints;
}
