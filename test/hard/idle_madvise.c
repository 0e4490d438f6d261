/* A kernel that reports success for every madvise and does nothing, as old emulators do: the memory
 * from calloc must still read zero. A seccomp filter answers instead of the kernel.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

__attribute__((visibility("default"))) const char *cairn_options = "decay_ms:5,dirty_cap:1M";

enum { SKIPPED = 77, ROUNDS = 6, BLOCKS = 200 };

static int answer_for_the_kernel(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO), /* 0: success */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
               ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
               : -1;
}

static void expect_zero(const char *block, size_t size, const char *call)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != 0) {
            fprintf(stderr, "%s(%zu): byte %zu is not zero\n", call, size, i);
            exit(1);
        }
}

/* Makes, fills and frees blocks from `size` on, so that their memory is due for a purge. */
static void use(size_t size)
{
    static char *blocks[BLOCKS];
    size_t count = size < 1 << 20 ? BLOCKS : 4;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = calloc(1, size);
        expect_zero(blocks[i], size, "calloc");
        memset(blocks[i], 0xff, size);
    }
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    malloc_trim(0);
}

/* Grows and shrinks a large block, whose end is released. */
static void resize(size_t size)
{
    char *block = malloc(size);
    memset(block, 0xff, size);
    block = realloc(block, size / 4);
    free(block);
    malloc_trim(0);
}

int main(void)
{
    if (answer_for_the_kernel() != 0)
        return SKIPPED;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t size = 8; size <= (size_t)40 << 20; size *= round % 4 + 3) {
            use(size + round);
            resize(size + round);
        }
    return 0;
}
