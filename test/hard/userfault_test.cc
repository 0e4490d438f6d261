// Blocks whose page faults the program serves by userfaultfd, like live migration and some garbage
// collectors. The heap moves, releases and clears their pages: it must not hang, nor lose the
// program's data.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

int open_userfault() {
  const int fd = static_cast<int>(
      syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  struct uffdio_api api = {};
  api.api = UFFD_API;
  if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

int g_userfault;

// Fills every missing page with sevens.
void *serve(void *) {
  static unsigned char page[65536] __attribute__((aligned(65536)));
  const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  memset(page, 7, sizeof page);
  for (;;) {
    struct pollfd wait = {g_userfault, POLLIN, 0};
    if (poll(&wait, 1, -1) < 0 && errno != EINTR) return nullptr;
    struct uffd_msg message;
    if (read(g_userfault, &message, sizeof message) != sizeof message) continue;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    struct uffdio_copy copy = {};
    copy.dst = message.arg.pagefault.address & ~(page_size - 1);
    copy.src = reinterpret_cast<uintptr_t>(page);
    copy.len = page_size;
    if (ioctl(g_userfault, UFFDIO_COPY, &copy) != 0) {
      REQUIRE(errno == EEXIST || errno == EAGAIN || errno == ENOENT);
    }
  }
}

// Watches the pages that are wholly within the block; they lose their content.
void watch(char *block, size_t size, bool on) {
  const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start =
      (reinterpret_cast<uintptr_t>(block) + page_size - 1) & ~(page_size - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(block) + size) & ~(page_size - 1);
  if (on) {
    REQUIRE(madvise(reinterpret_cast<void *>(start), end - start, MADV_DONTNEED) == 0);
    struct uffdio_register range = {};
    range.range.start = start;
    range.range.len = end - start;
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    REQUIRE(ioctl(g_userfault, UFFDIO_REGISTER, &range) == 0);
  } else {
    struct uffdio_range range = {start, end - start};
    REQUIRE(ioctl(g_userfault, UFFDIO_UNREGISTER, &range) == 0);
  }
}

void require_sevens(const char *block, size_t size) {
  for (size_t at = 8192; at + 8192 < size; at += 4096) REQUIRE(block[at] == 7);
}

TEST(Userfault, BlocksWithServedFaultsWorkAsOthers) {
  if (const int fd = open_userfault(); fd < 0) {
    GTEST_SKIP() << "userfaultfd is not permitted here";
  } else {
    close(fd);
  }
  EXPECT_CHILD(250, [] {
    g_userfault = open_userfault();
    REQUIRE(g_userfault >= 0);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, serve, nullptr) == 0);
    for (size_t size : {300 * kKiB, 3 * kMiB, 40 * kMiB}) {
      for (int round = 0; round < 3; round++) {
        char *block = static_cast<char *>(malloc(size));
        REQUIRE(block != nullptr);
        watch(block, size, true);
        require_sevens(block, size);
        // The served content stays when the block grows, moved or not, and when it shrinks.
        block = static_cast<char *>(realloc(block, size * 2));
        REQUIRE(block != nullptr);
        require_sevens(block, size);
        block = static_cast<char *>(realloc(block, size / 2));
        REQUIRE(block != nullptr);
        require_sevens(block, size / 2);
        free(block);
        malloc_trim(0);
        free(malloc(size));
      }
      // A block that was freed while it was watched, and whose memory was released, can be used
      // again once the program no longer watches it.
      char *block = static_cast<char *>(malloc(size));
      watch(block, size, true);
      require_sevens(block, size);
      watch(block, size, false);
      free(block);
      malloc_trim(0);
      char *again = static_cast<char *>(calloc(1, size));
      REQUIRE(again && subject::is_zero(again, size));
      free(again);
    }
  });
}

// No thread answers a fault here. If growth looked at a page of a live block, malloc would wait for
// ever.
TEST(Userfault, GrowthLooksAtNoBlock) {
  if (const int fd = open_userfault(); fd < 0) {
    GTEST_SKIP() << "userfaultfd is not permitted here";
  } else {
    close(fd);
  }
  EXPECT_CHILD(60, [] {
    g_userfault = open_userfault();
    REQUIRE(g_userfault >= 0);
    const auto fill = [](int count) {
      for (int i = 0; i < count; i++) {
        char *volatile block = static_cast<char *>(malloc(9000));
        REQUIRE(block != nullptr);
        memset(block, 1, 9000);
      }
    };
    fill(1500);
    for (int i = 0; i < 400; i++) {
      char *block = static_cast<char *>(malloc(40000));
      REQUIRE(block != nullptr);
      watch(block, 40000, true);
    }
    fill(4000);
    struct pollfd fault = {g_userfault, POLLIN, 0};
    REQUIRE(poll(&fault, 1, 0) == 0);
  });
}

}  // namespace
