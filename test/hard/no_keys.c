// Many short-lived threads in a process that has taken all keys of thread-specific data before the
// first block: the blocks that they free, and those that others free for them, serve the next
// threads.
//
// usage: no_keys [LIBRARY PREFIX]
// With LIBRARY, the program loads that library once no key is left, and uses its functions PREFIX +
// malloc and free. Otherwise it uses the malloc of the process.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 1500, BLOCKS = 40, MOST_KIB = 32 << 10 };

static void *(*allocate)(size_t) = malloc;
static void (*release)(void *) = free;
static void *left[BLOCKS];

static long resident_kib(void) {
  long size = 0, resident = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  if (!statm || fscanf(statm, "%ld %ld", &size, &resident) != 2) exit(2);
  fclose(statm);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *work(void *argument) {
  for (size_t i = 0; i < BLOCKS; i++) {
    release(left[i]);
    const size_t size = (i + 1) * 200;
    left[i] = allocate(size);
    if (!left[i]) exit(1);
    memset(left[i], 1, size);
    void *block = allocate(3 * size);
    if (!block) exit(1);
    memset(block, 2, 3 * size);
    release(block);
  }
  return argument;
}

int main(int argc, char **argv) {
  pthread_key_t key;
  alarm(100);
  while (pthread_key_create(&key, NULL) == 0) continue;
  if (argc == 3) {
    void *library = dlopen(argv[1], RTLD_NOW);
    char name[64];
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
    snprintf(name, sizeof name, "%smalloc", argv[2]);
    *(void **)&allocate = dlsym(library, name);
    snprintf(name, sizeof name, "%sfree", argv[2]);
    *(void **)&release = dlsym(library, name);
    if (!allocate || !release) return 2;
  }
  release(allocate(100));
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 2;
    pthread_join(thread, NULL);
  }
  const long kib = resident_kib();
  fprintf(stderr, "%ld KiB resident after %d threads\n", kib, THREADS);
  return kib <= MOST_KIB ? 0 : 1;
}
