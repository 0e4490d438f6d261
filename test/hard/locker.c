// Preloaded next to the malloc under test: locks the memory of a program under a limit of 8 MiB.
// CAIRN_TEST_LOCK is "all", or "future" for programs that exceed the limit before they start.
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void lock(void) {
  const char *wanted = getenv("CAIRN_TEST_LOCK");
  const struct rlimit limit = {8 << 20, 8 << 20};
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  if (!wanted || setrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      syscall(SYS_capget, &header, data) != 0) {
    _exit(98);
  }
  data[CAP_IPC_LOCK / 32].effective &= ~(1u << (CAP_IPC_LOCK % 32));
  data[CAP_IPC_LOCK / 32].permitted &= ~(1u << (CAP_IPC_LOCK % 32));
  const int flags = strcmp(wanted, "all") == 0 ? MCL_CURRENT | MCL_FUTURE : MCL_FUTURE;
  if (syscall(SYS_capset, &header, data) != 0) _exit(98);
  if (mlockall(flags) != 0) _exit(errno == EPERM || errno == ENOSYS ? 77 : 97);
}
