// A running program loads a Cairn library with dlopen, uses it through pointers next to its own
// malloc, and closes it again while threads that used it live on and end.
//
// usage: late_load LIBRARY PREFIX (TLS_HOG | -)
// The functions of LIBRARY are PREFIX + malloc and so on. TLS_HOG is a library with 64 bytes of
// static TLS, of which as many copies are loaded first as leave 64 bytes free.

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "subject.h"

namespace {

struct Heap {
  void *handle;
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void (*free)(void *);
};

template <typename Function>
void look_up(void *handle, const std::string &name, Function **function) {
  *function = reinterpret_cast<Function *>(dlsym(handle, name.c_str()));
  if (*function) return;
  fprintf(stderr, "no %s: %s\n", name.c_str(), dlerror());
  exit(1);
}

Heap load(const char *library, const std::string &prefix, int flags) {
  Heap heap = {};
  heap.handle = dlopen(library, flags);
  if (!heap.handle) {
    fprintf(stderr, "dlopen: %s\n", dlerror());
    exit(1);
  }
  look_up(heap.handle, prefix + "malloc", &heap.malloc);
  look_up(heap.handle, prefix + "calloc", &heap.calloc);
  look_up(heap.handle, prefix + "realloc", &heap.realloc);
  look_up(heap.handle, prefix + "free", &heap.free);
  return heap;
}

void exercise(const Heap &heap, unsigned seed) {
  void *blocks[400];
  void *ours[400];
  for (size_t i = 0; i < 400; i++) {
    const size_t size = i * (i % 7 == 0 ? 600 : 9);
    blocks[i] = i % 2 ? heap.malloc(size) : heap.calloc(1, size);
    ours[i] = malloc(size);
    REQUIRE(blocks[i] && ours[i] && blocks[i] != ours[i]);
    subject::fill(blocks[i], size, seed);
    subject::fill(ours[i], size, seed + 1);
  }
  for (size_t i = 0; i < 400; i++) {
    const size_t size = i * (i % 7 == 0 ? 600 : 9);
    REQUIRE(subject::holds(blocks[i], size, seed) && subject::holds(ours[i], size, seed + 1));
    blocks[i] = heap.realloc(blocks[i], size + 1000);
    REQUIRE(blocks[i] && subject::holds(blocks[i], size, seed));
    heap.free(blocks[i]);
    free(ours[i]);
  }
}

Heap g_heap;
pthread_barrier_t g_barrier;

// A thread that starts before the library is loaded, uses it, and ends after it was closed.
void *long_lived(void *) {
  pthread_barrier_wait(&g_barrier);  // loaded
  exercise(g_heap, 3);
  pthread_barrier_wait(&g_barrier);  // used
  pthread_barrier_wait(&g_barrier);  // closed
  return nullptr;
}

void *short_lived(void *) {
  exercise(g_heap, 4);
  return nullptr;
}

// The number of copies of the hog that can be loaded. A child finds it, since they cannot be
// unloaded.
size_t load_hogs(const std::filesystem::path &directory, const char *hog, size_t most) {
  size_t count = 0;
  while (count < most) {
    const auto copy = directory / ("hog" + std::to_string(count) + ".so");
    if (!std::filesystem::exists(copy)) std::filesystem::copy_file(hog, copy);
    void *handle = dlopen(copy.c_str(), RTLD_NOW);
    if (!handle) break;
    auto *touch = reinterpret_cast<int *(*)()>(dlsym(handle, "tls_hog_touch"));
    *touch() = 1;
    count++;
  }
  return count;
}

void use_up_static_tls(const char *hog) {
  char directory[] = "/tmp/cairn-hogs-XXXXXX";
  REQUIRE(mkdtemp(directory));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const size_t count = load_hogs(directory, hog, 200);
    REQUIRE(write(ends[1], &count, sizeof count) == sizeof count);
    _exit(0);
  }
  size_t most = 0;
  REQUIRE(read(ends[0], &most, sizeof most) == sizeof most);
  waitpid(child, nullptr, 0);
  REQUIRE(most > 2 && most < 200);
  REQUIRE(load_hogs(directory, hog, most - 1) == most - 1);
  std::filesystem::remove_all(directory);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  alarm(100);
  const char *library = argv[1];
  const std::string prefix = argv[2], hog = argv[3];
  if (hog != "-") use_up_static_tls(hog.c_str());

  const int flags[] = {RTLD_NOW | RTLD_LOCAL, RTLD_LAZY | RTLD_LOCAL,
                       RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND};
  for (int round = 0; round < 9; round++) {
    pthread_barrier_init(&g_barrier, nullptr, 5);
    std::vector<pthread_t> lasting(4), passing(4);
    for (pthread_t &thread : lasting) {
      REQUIRE(pthread_create(&thread, nullptr, long_lived, nullptr) == 0);
    }
    g_heap = load(library, prefix, flags[round % 3]);
    pthread_barrier_wait(&g_barrier);
    exercise(g_heap, 5);
    for (pthread_t &thread : passing) {
      REQUIRE(pthread_create(&thread, nullptr, short_lived, nullptr) == 0);
    }
    for (pthread_t thread : passing) pthread_join(thread, nullptr);
    pthread_barrier_wait(&g_barrier);
    // A fork while the library is loaded, and one after it was closed.
    for (int closed = 0; closed < 2; closed++) {
      const pid_t child = fork();
      if (child == 0) {
        if (!closed) exercise(g_heap, 6);
        free(malloc(10));
        _exit(0);
      }
      int status = 1;
      waitpid(child, &status, 0);
      REQUIRE(status == 0);
      if (!closed) REQUIRE(dlclose(g_heap.handle) == 0);
    }
    pthread_barrier_wait(&g_barrier);
    for (pthread_t thread : lasting) pthread_join(thread, nullptr);
    pthread_barrier_destroy(&g_barrier);
  }
  return 0;
}
