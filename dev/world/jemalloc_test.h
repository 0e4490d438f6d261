// The part of jemalloc's test library that its tests of libc's functions need, so that they can be
// compiled without jemalloc and run on any malloc. Prints a line for each test.
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_failures;

static inline int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size)
{
    (void)name, (void)old, (void)old_size, (void)new, (void)new_size;
    return 0;
}

static inline int get_errno(void) { return errno; }
static inline void set_errno(int error) { errno = error; }

#define TEST_BEGIN(name)                                                                           \
    static void name(void)                                                                         \
    {                                                                                              \
        const char *test_name = #name;                                                             \
        int failures_before = test_failures;
#define TEST_END                                                                                   \
    goto label_test_end;                                                                           \
    label_test_end:                                                                                \
    printf("%s: %s\n", test_name, test_failures == failures_before ? "ok" : "failed");             \
    }

#define test_expect(condition, ...) ((condition) ? (void)0 : (void)(test_failures++))
#define expect_d_eq(a, b, ...)          test_expect((a) == (b))
#define expect_d_ne(a, b, ...)          test_expect((a) != (b))
#define expect_zu_eq(a, b, ...)         test_expect((a) == (b))
#define expect_ptr_eq(a, b, ...)        test_expect((a) == (b))
#define expect_ptr_ne(a, b, ...)        test_expect((a) != (b))
#define expect_ptr_null(a, ...)         test_expect((a) == NULL)
#define expect_ptr_not_null(a, ...)     test_expect((a) != NULL)
#define expect_true(a, ...)             test_expect(a)
#define expect_false(a, ...)            test_expect(!(a))
#define expect_(a, ...)                 test_expect(a)
#define assert_ptr_not_null(a, ...)     test_expect((a) != NULL)
#define test_fail(...)                  ((void)test_failures++)
#define test_skip_if(condition)                                                                    \
    do {                                                                                           \
        if (condition)                                                                             \
            goto label_test_end;                                                                   \
    } while (0)

typedef void test_function(void);

static inline int test_run(test_function *const *tests)
{
    while (*tests)
        (*tests++)();
    return 0;
}
#define test(...)               test_run((test_function *const[]){__VA_ARGS__, NULL})
#define test_no_reentrancy(...) test(__VA_ARGS__)
#define LG_SIZEOF_PTR           3
#define SIZE_T_MAX              SIZE_MAX
#define BUFERROR_BUF            64
#define TEST_MALLOC_SIZE        malloc_usable_size
#define buferror(error, buffer, bytes) snprintf(buffer, bytes, "error %d", error)
#define JEMALLOC_DIAGNOSTIC_PUSH
#define JEMALLOC_DIAGNOSTIC_POP
#define JEMALLOC_DIAGNOSTIC_IGNORE_ALLOC_SIZE_LARGER_THAN
