// A program that is linked statically as a whole, with libc and libcairn-malloc.a: it has no
// dynamic linker, and no other object resolves its weak symbols. Threads, exceptions, fork.

#include <malloc.h>
#include <pthread.h>

#include <map>
#include <new>
#include <string>
#include <vector>

#include "subject.h"

namespace {

void *work(void *) {
  std::map<std::string, std::vector<int>> map;
  for (int i = 0; i < 5000; i++) map["key " + std::to_string(i * 7919)].resize(50);
  REQUIRE(map.size() == 5000);
  return nullptr;
}

}  // namespace

int main() {
  alarm(100);
  pthread_t threads[4];
  for (pthread_t &thread : threads) {
    REQUIRE(pthread_create(&thread, nullptr, work, nullptr) == 0);
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  bool thrown = false;
  try {
    ::operator delete(::operator new(subject::opaque(SIZE_MAX / 4)));
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  REQUIRE(thrown);
  static int calls;
  std::set_new_handler([] {
    calls++;
    std::set_new_handler(nullptr);
  });
  REQUIRE(::operator new(subject::opaque(SIZE_MAX / 4), std::nothrow) == nullptr);
  REQUIRE(calls == 1);
  const pid_t child = fork();
  if (child == 0) {
    work(nullptr);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  void *block = malloc(100 * subject::kMiB);
  REQUIRE(block && malloc_usable_size(block) >= 100 * subject::kMiB);
  free(block);
  malloc_trim(0);
  return 0;
}
