// A program with one fault of each kind that Valgrind's tools look for: tools_test.py runs it.
// The program knows nothing of Cairn.
#include <pthread.h>

#include <cstdlib>
#include <cstring>

namespace {

volatile char sink;
char *volatile lost;
volatile int counter;

void overflow() {
  auto *block = static_cast<char *>(malloc(40));
  memset(block, 1, 40);
  *const_cast<volatile char *>(block + 40) = 1;
  free(block);
}

void use_after_free() {
  auto *block = static_cast<char *>(malloc(24));
  memset(block, 1, 24);
  free(block);
  sink = *const_cast<volatile char *>(block + 3);
}

void use_after_delete() {
  auto *block = new char[100000];
  memset(block, 1, 100000);
  delete[] block;
  sink = *const_cast<volatile char *>(block + 50000);
}

void leak() {
  lost = static_cast<char *>(malloc(1000));
  lost = nullptr;
}

void *race(void *argument) {
  for (int i = 0; i < 100; i++) counter = counter + 1;
  return argument;
}

void data_race() {
  pthread_t threads[2];
  for (auto &thread : threads) pthread_create(&thread, nullptr, race, nullptr);
  for (auto &thread : threads) pthread_join(thread, nullptr);
}

}  // namespace

int main() {
  overflow();
  use_after_free();
  use_after_delete();
  leak();
  data_race();
}
