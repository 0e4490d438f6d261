// The heap's statistics are correct: mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "subject.h"

namespace {

using subject::kKiB;
using subject::kMiB;

// Bytes in live blocks of any kind. The libc counts mapped blocks separately.
long long live_bytes() {
  struct mallinfo2 info = mallinfo2();
  return static_cast<long long>(info.uordblks + info.hblkhd);
}

TEST(Facts, LiveBytesFollowTheBlocks) {
  struct {
    size_t size, count;
  } const loads[] = {{8, 200000},   {100, 50000},   {1000, 10000},    {10000, 1000},
                     {100000, 100}, {kMiB, 20}, {100 * kMiB, 2}};
  for (const auto &load : loads) {
    std::vector<void *> blocks(load.count);
    const long long before = live_bytes();
    long long usable = 0;
    for (void *&block : blocks) {
      block = malloc(load.size);
      ASSERT_NE(block, nullptr);
      usable += static_cast<long long>(malloc_usable_size(block));
    }
    const long long during = live_bytes() - before;
    EXPECT_GE(during, usable) << load.size;
    // The libc has a header of 8 or 16 bytes a block.
    EXPECT_LE(during, usable + static_cast<long long>(load.count * 16 + 64 * kKiB)) << load.size;
    for (size_t i = 0; i < load.count; i += 2) free(blocks[i]);
    const long long half = live_bytes() - before;
    EXPECT_NEAR(static_cast<double>(half), static_cast<double>(during) / 2, 64.0 * kKiB)
        << load.size;
    for (size_t i = 1; i < load.count; i += 2) free(blocks[i]);
    EXPECT_NEAR(static_cast<double>(live_bytes() - before), 0, 64.0 * kKiB) << load.size;
  }
}

// Live blocks of another thread count, also those that this thread frees.
TEST(Facts, OtherThreadsCount) {
  static void *blocks[10000];
  static pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, 2);
  pthread_t thread;
  const long long before = live_bytes();
  ASSERT_EQ(pthread_create(&thread, nullptr, [](void *) -> void * {
    for (void *&block : blocks) block = malloc(1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return nullptr;
  }, nullptr), 0);
  pthread_barrier_wait(&barrier);
  EXPECT_GE(live_bytes() - before, 10000 * 1000);
  EXPECT_LE(live_bytes() - before, 10000 * 1100);
  for (void *block : blocks) free(block);
  EXPECT_NEAR(static_cast<double>(live_bytes() - before), 0, 64.0 * kKiB);
  pthread_barrier_wait(&barrier);
  pthread_join(thread, nullptr);
}

TEST(Facts, FieldsAgree) {
  std::vector<void *> blocks;
  for (size_t i = 0; i < 20000; i++) blocks.push_back(malloc(i % 2000));
  void *large = malloc(50 * kMiB);
  struct mallinfo2 info = mallinfo2();
  // Free and live space together are the space of the arenas.
  EXPECT_LE(info.uordblks + info.fordblks, info.arena + info.hblkhd);
  EXPECT_GE(info.arena + info.hblkhd, info.uordblks);
  EXPECT_LT(info.arena + info.hblkhd, static_cast<size_t>(subject::virtual_kib()) * 1024);
  EXPECT_LE(info.keepcost, info.fordblks);
  struct mallinfo narrow = mallinfo();
  EXPECT_EQ(narrow.arena, static_cast<int>(info.arena));
  EXPECT_NEAR(narrow.uordblks, static_cast<double>(info.uordblks), 4096);
  free(large);
  for (void *block : blocks) free(block);
}

// Whether the text is one well-formed element. The function knows enough of XML for the output of
// malloc_info: a stack of tags, quoted attributes, no text that needs escaping.
bool well_formed(const std::string &text, std::string *root, std::string *problem) {
  std::vector<std::string> open;
  size_t elements_at_top = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '<') {
      if (text[at] == '>' || text[at] == '&' || (open.empty() && !isspace(text[at]))) {
        *problem = "stray text at " + std::to_string(at);
        return false;
      }
      at++;
      continue;
    }
    const size_t end = text.find('>', at);
    if (end == std::string::npos) {
      *problem = "tag without end";
      return false;
    }
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.empty() || tag[0] == '?') continue;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) {
        *problem = "unexpected </" + tag.substr(1) + ">";
        return false;
      }
      open.pop_back();
      continue;
    }
    const bool closed = tag.back() == '/';
    if (closed) tag.pop_back();
    const std::string name = tag.substr(0, tag.find_first_of(" \n\t"));
    // attributes: name="value"
    size_t quotes = 0, equals = 0;
    bool inside = false;
    for (char c : tag) {
      if (c == '"') quotes++, inside = !inside;
      if (c == '<' || (c == '=' && inside)) equals = 1000;
      if (c == '=' && !inside) equals++;
    }
    if (quotes != equals * 2) {
      *problem = "attributes of " + name;
      return false;
    }
    if (open.empty()) {
      elements_at_top++;
      *root = name;
    }
    if (!closed) open.push_back(name);
  }
  if (!open.empty()) *problem = "no </" + open.back() + ">";
  if (elements_at_top != 1) *problem = "not one root element";
  return open.empty() && elements_at_top == 1;
}

TEST(Facts, TheXmlCheckerChecks) {
  std::string root, problem;
  EXPECT_TRUE(well_formed("<a b=\"1\">\n<c/><d e=\"2\" f=\"3\"/></a>\n", &root, &problem));
  EXPECT_EQ(root, "a");
  for (const char *bad : {"", "<a>", "<a></b>", "<a b=1/>", "<a b=\"1/>", "<a/><b/>", "x<a/>",
                          "<a>&</a>", "<a", "</a>"}) {
    EXPECT_FALSE(well_formed(bad, &root, &problem)) << bad;
  }
}

std::string malloc_info_text() {
  static char text[kMiB];
  FILE *file = fmemopen(text, sizeof text, "w");
  if (malloc_info(0, file) != 0) return "malloc_info failed";
  fclose(file);
  return text;
}

// The largest number among the attributes called `name` of all elements.
size_t largest(const std::string &text, const std::string &name) {
  size_t most = 0;
  const std::string key = " " + name + "=\"";
  for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += key.size()) {
    most = std::max<size_t>(most, strtoull(text.c_str() + at + key.size(), nullptr, 10));
  }
  return most;
}

// The libc's elements have a `size` and a `count`; Cairn's also have `bytes` of live blocks, which
// the test compares with its own blocks.
TEST(Facts, MallocInfo) {
  std::vector<void *> blocks;
  for (size_t i = 0; i < 20000; i++) {
    blocks.push_back(malloc(1000));
    memset(blocks.back(), 1, 1000);
  }
  const std::string text = malloc_info_text();
  std::string root, problem;
  EXPECT_TRUE(well_formed(text, &root, &problem)) << problem << "\n" << text;
  EXPECT_EQ(root, "malloc");
  EXPECT_EQ(text.compare(0, 17, "<malloc version=\""), 0) << text.substr(0, 60);
  const size_t most = std::max(largest(text, "size"), largest(text, "bytes"));
  EXPECT_GE(most, 20u * 1000 * 1000) << text;
  EXPECT_LE(most, static_cast<size_t>(subject::virtual_kib()) * 1024) << text;
  for (void *block : blocks) free(block);
  // The figure follows the frees.
  const std::string after = malloc_info_text();
  if (largest(text, "bytes")) {
    EXPECT_LT(largest(after, "bytes") + 10 * kMiB, largest(text, "bytes") + 1) << after;
  }
}

// The libc returns EINVAL; its manual documents -1, with errno set.
TEST(Facts, MallocInfoRefusesOptions) {
  errno = 0;
  const int result = malloc_info(1, stdout);
  EXPECT_TRUE(result == EINVAL || (result == -1 && errno == EINVAL)) << result;
}

TEST(Facts, MalloptKnowsTheOptions) {
  EXPECT_EQ(mallopt(M_MXFAST, 64), 1);
  EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, 128 * 1024), 1);
  EXPECT_EQ(mallopt(M_TOP_PAD, 128 * 1024), 1);
  EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 128 * 1024), 1);
  EXPECT_EQ(mallopt(M_MMAP_MAX, 65536), 1);
  EXPECT_EQ(mallopt(M_CHECK_ACTION, 3), 1);
  EXPECT_EQ(mallopt(M_ARENA_TEST, 2), 1);
  EXPECT_EQ(mallopt(M_ARENA_MAX, 2), 1);
}

TEST(Facts, StatsGoToStderr) {
  testing::internal::CaptureStderr();
  malloc_stats();
  fflush(stderr);
  EXPECT_FALSE(testing::internal::GetCapturedStderr().empty());
}

}  // namespace
