// A small program whose whole memory is locked, like that of programs with secrets or deadlines.
//
// usage: locked_program <limit in KiB, 0 for none> before|after
//
// "before": memory is locked before the first allocation; "after": once there are some blocks. The
// program prints the locked memory at the end, in KiB. The program exits with 77 where locking is
// not permitted at all.
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what) {
  dprintf(STDERR_FILENO, "locked_program: %s (errno %d)\n", what, errno);
  _exit(1);
}

// Gives up the privilege to lock more than the limit, which root has.
static void limit_locked(size_t bytes) {
  const struct rlimit limit = {bytes, bytes};
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) fail("setrlimit");
  if (syscall(SYS_capget, &header, data) != 0) fail("capget");
  data[CAP_IPC_LOCK / 32].effective &= ~(1u << (CAP_IPC_LOCK % 32));
  data[CAP_IPC_LOCK / 32].permitted &= ~(1u << (CAP_IPC_LOCK % 32));
  if (syscall(SYS_capset, &header, data) != 0) fail("capset");
}

static void lock_everything(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) return;
  if (errno == EPERM || errno == ENOSYS) _exit(77);
  fail("mlockall");
}

// Allocates and frees some dozen KiB of blocks.
static void work(void) {
  static char *slots[200];
  unsigned state = 5;
  for (int i = 0; i < 20000; i++) {
    state = state * 1664525 + 1013904223;
    const size_t at = (state >> 8) % 200;
    const size_t size = (state >> 18) % (i % 500 == 0 ? 4000 : 400);
    free(slots[at]);
    slots[at] = malloc(size);
    if (!slots[at]) fail("malloc");
    memset(slots[at], (int)at, size);
  }
  for (size_t at = 0; at < 200; at++) {
    free(slots[at]);
    slots[at] = NULL;
  }
}

static long locked_kib(void) {
  char text[8192];
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) fail("status");
  text[length] = 0;
  const char *at = strstr(text, "VmLck:");
  return at ? strtol(at + 6, NULL, 10) : -1;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const size_t limit_kib = strtoul(argv[1], NULL, 10);
  if (limit_kib != 0) limit_locked(limit_kib * 1024);
  const int late = strcmp(argv[2], "after") == 0;
  if (late) free(malloc(100));
  lock_everything();
  work();
  if (limit_kib == 0) work();
  char text[32];
  const int length = snprintf(text, sizeof text, "%ld\n", locked_kib());
  return write(STDOUT_FILENO, text, (size_t)length) == length ? 0 : 1;
}
