// The first block of a program that has hardly any address space left. Nothing before it uses
// malloc.
//
// usage: first_block <KiB>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t number(const char *text) {
  size_t value = 0;
  for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + (size_t)(*text - '0');
  return value;
}

int main(int argc, char **argv) {
  char text[128] = "";
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (argc != 2 || read(fd, text, sizeof text - 1) <= 0) return 2;
  close(fd);
  const size_t bytes = number(text) * (size_t)sysconf(_SC_PAGESIZE) + number(argv[1]) * 1024;
  const struct rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  char *first = malloc(8);
  if (!first) return 1;
  memset(first, 1, 8);
  // More blocks, up to an eighth of the remaining address space.
  for (size_t taken = 0; taken < number(argv[1]) * 1024 / 8; taken += 100) {
    char *block = malloc(100);
    if (!block) return 3;
    memset(block, 2, 100);
  }
  return first[7] == 1 ? 0 : 4;
}
