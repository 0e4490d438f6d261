// The C++ operators: all forms, new handlers, bad_alloc.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "subject.h"

namespace {

using subject::kMiB;
using subject::opaque;

constexpr size_t kHuge = size_t{1} << 62;

struct Form {
  const char *name;
  void *(*make)(size_t size);
  void (*drop)(void *block, size_t size);
  bool throws;
  size_t alignment;
};

constexpr std::align_val_t k64{64};
constexpr std::align_val_t k8K{8192};

// Every form of new with every form of delete that may free its blocks.
const Form kForms[] = {
    {"new", [](size_t n) { return ::operator new(n); },
     [](void *p, size_t) { ::operator delete(p); }, true, 1},
    {"new, sized delete", [](size_t n) { return ::operator new(n); },
     [](void *p, size_t n) { ::operator delete(p, n); }, true, 1},
    {"new, nothrow delete", [](size_t n) { return ::operator new(n); },
     [](void *p, size_t) { ::operator delete(p, std::nothrow); }, true, 1},
    {"nothrow new", [](size_t n) { return ::operator new(n, std::nothrow); },
     [](void *p, size_t) { ::operator delete(p, std::nothrow); }, false, 1},
    {"nothrow new, sized delete", [](size_t n) { return ::operator new(n, std::nothrow); },
     [](void *p, size_t n) { ::operator delete(p, n); }, false, 1},
    {"new[]", [](size_t n) { return ::operator new[](n); },
     [](void *p, size_t) { ::operator delete[](p); }, true, 1},
    {"new[], sized delete[]", [](size_t n) { return ::operator new[](n); },
     [](void *p, size_t n) { ::operator delete[](p, n); }, true, 1},
    {"new[], nothrow delete[]", [](size_t n) { return ::operator new[](n); },
     [](void *p, size_t) { ::operator delete[](p, std::nothrow); }, true, 1},
    {"nothrow new[]", [](size_t n) { return ::operator new[](n, std::nothrow); },
     [](void *p, size_t) { ::operator delete[](p, std::nothrow); }, false, 1},
    {"aligned new", [](size_t n) { return ::operator new(n, k64); },
     [](void *p, size_t) { ::operator delete(p, k64); }, true, 64},
    {"aligned new, sized delete", [](size_t n) { return ::operator new(n, k64); },
     [](void *p, size_t n) { ::operator delete(p, n, k64); }, true, 64},
    {"aligned new, nothrow delete", [](size_t n) { return ::operator new(n, k64); },
     [](void *p, size_t) { ::operator delete(p, k64, std::nothrow); }, true, 64},
    {"aligned nothrow new", [](size_t n) { return ::operator new(n, k8K, std::nothrow); },
     [](void *p, size_t) { ::operator delete(p, k8K, std::nothrow); }, false, 8192},
    {"aligned new[]", [](size_t n) { return ::operator new[](n, k8K); },
     [](void *p, size_t) { ::operator delete[](p, k8K); }, true, 8192},
    {"aligned new[], sized delete[]", [](size_t n) { return ::operator new[](n, k8K); },
     [](void *p, size_t n) { ::operator delete[](p, n, k8K); }, true, 8192},
    {"aligned new[], nothrow delete[]", [](size_t n) { return ::operator new[](n, k64); },
     [](void *p, size_t) { ::operator delete[](p, k64, std::nothrow); }, true, 64},
    {"aligned nothrow new[]", [](size_t n) { return ::operator new[](n, k64, std::nothrow); },
     [](void *p, size_t) { ::operator delete[](p, k64, std::nothrow); }, false, 64},
};

TEST(Operators, AllForms) {
  const size_t sizes[] = {0, 1, 8, 9, 33, 100, 1000, 4097, 50000, 131072, 200000, 3 * kMiB};
  for (const Form &form : kForms) {
    for (size_t size : sizes) {
      void *first = form.make(size);
      void *second = form.make(size);
      ASSERT_NE(first, nullptr) << form.name;
      ASSERT_NE(first, second) << form.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % form.alignment, 0u) << form.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % (size > 8 ? 16 : 8), 0u) << form.name;
      EXPECT_GE(malloc_usable_size(first), size);
      subject::fill(first, size, 1);
      subject::fill(second, size, 2);
      EXPECT_TRUE(subject::holds(first, size, 1)) << form.name;
      form.drop(first, size);
      form.drop(second, size);
    }
    form.drop(nullptr, 0);
  }
}

int g_handler_calls;
void *g_reserve;

// Removes the handler, however the case ends.
struct NoHandlerAfterwards {
  ~NoHandlerAfterwards() { std::set_new_handler(nullptr); }
};

TEST(Operators, ThrowWithoutHandler) {
  for (const Form &form : kForms) {
    for (size_t size : {kHuge, SIZE_MAX, static_cast<size_t>(PTRDIFF_MAX)}) {
      if (form.throws) {
        EXPECT_THROW(form.make(opaque(size)), std::bad_alloc) << form.name;
      } else {
        EXPECT_EQ(form.make(opaque(size)), nullptr) << form.name;
      }
    }
  }
}

// A handler is called repeatedly until it resolves the shortage; here it leaves by an exception.
TEST(Operators, HandlerIsCalledUntilItGivesUp) {
  NoHandlerAfterwards guard;
  for (const Form &form : kForms) {
    g_handler_calls = 0;
    std::set_new_handler([] {
      if (++g_handler_calls == 5) std::set_new_handler(nullptr);
    });
    if (form.throws) {
      EXPECT_THROW(form.make(opaque(kHuge)), std::bad_alloc) << form.name;
    } else {
      EXPECT_EQ(form.make(opaque(kHuge)), nullptr) << form.name;
    }
    EXPECT_EQ(g_handler_calls, 5) << form.name;
  }
}

struct OutOfStones : std::bad_alloc {
  std::string told = "a message that is itself allocated, and not a short one";
};

// An exception of the handler must pass through the allocator; the nothrow forms turn it into NULL.
TEST(Operators, HandlerThrows) {
  NoHandlerAfterwards guard;
  for (const Form &form : kForms) {
    std::set_new_handler([] { throw OutOfStones(); });
    if (form.throws) {
      EXPECT_THROW(form.make(opaque(kHuge)), OutOfStones) << form.name;
    } else {
      void *block = &guard;
      EXPECT_NO_THROW(block = form.make(opaque(kHuge))) << form.name;
      EXPECT_EQ(block, nullptr) << form.name;
    }
  }
}

void limit_address_space(size_t more) {
  const rlim_t limit = static_cast<rlim_t>(subject::virtual_kib()) * 1024 + more;
  const struct rlimit bounds = {limit, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_AS, &bounds) == 0);
}

// Under a real limit, a handler that frees memory lets operator new succeed.
TEST(Operators, HandlerMakesRoom) {
  EXPECT_CHILD(250, [] {
    g_reserve = malloc(64 * kMiB);
    memset(g_reserve, 1, 64 * kMiB);
    limit_address_space(48 * kMiB);
    static int calls;
    std::set_new_handler([] {
      if (++calls > 1) std::set_new_handler(nullptr);
      free(g_reserve);
      g_reserve = nullptr;
    });
    char *block = static_cast<char *>(::operator new(60 * kMiB));
    REQUIRE(calls == 1);
    memset(block, 1, 60 * kMiB);
    ::operator delete(block);
  });
}

TEST(Operators, BadAllocUnderARealLimit) {
  for (size_t size : {size_t{48}, size_t{5000}, size_t{100000}, kMiB}) {
    EXPECT_CHILD(250, [size] {
      limit_address_space(96 * kMiB);
      size_t counts[2] = {0, 0};
      for (size_t &count : counts) {
        void **chain = nullptr;
        bool thrown = false;
        try {
          for (;;) {
            void **block = static_cast<void **>(::operator new(size));
            *block = chain;
            chain = block;
            count++;
          }
        } catch (const std::bad_alloc &) {
          thrown = true;
        }
        REQUIRE(thrown);
        REQUIRE(::operator new(size, std::nothrow) == nullptr);
        while (chain) {
          void **next = static_cast<void **>(*chain);
          ::operator delete(chain);
          chain = next;
        }
      }
      // The failure loses no memory: every byte of the limit can be used, except for overhead.
      REQUIRE(counts[0] * size > 32 * kMiB);
      REQUIRE(counts[1] >= counts[0] - counts[0] / 8);
    }) << size;
  }
}

struct alignas(128) Wide {
  char bytes[300];
};

TEST(Operators, ThroughTheLanguage) {
  for (int i = 0; i < 100; i++) {
    auto wide = std::make_unique<Wide>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.get()) % 128, 0u);
    std::unique_ptr<Wide[]> many(new Wide[static_cast<size_t>(i) + 1]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(many.get()) % 128, 0u);
    std::unique_ptr<std::string[]> strings(new std::string[static_cast<size_t>(i)]);
    std::map<std::string, std::vector<int>> map;
    for (int j = 0; j < i; j++) map[std::string(40, 'x') + std::to_string(j)].resize(100);
    EXPECT_EQ(map.size(), static_cast<size_t>(i));
  }
}

}  // namespace
