/* The program of leaks_command_test.py: it has lost one block of each kind, and keeps blocks that
 * look lost. The program prints "lost KIND ADDRESS" and "kept KIND ADDRESS"; then it stops, aborts,
 * waits or exits, according to its argument.
 *
 * It stores addresses for its own use as complements, so that they point to no block.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct node {
    struct node *left, *right;
    char filler[40];
};

static struct note {
    const char *state, *kind;
    uintptr_t complement;
} notes[100];
static int note_count;

static void note(const char *state, const char *kind, uintptr_t block)
{
    if (block == 0)
        exit(3);
    notes[note_count++] = (struct note){state, kind, ~block};
}

static void print_notes(void)
{
    static char buffer[1 << 14];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* it allocates nothing */
    for (int i = 0; i < note_count; i++)
        printf("%s %s %#lx\n", notes[i].state, notes[i].kind, (unsigned long)~notes[i].complement);
    fflush(stdout);
}

static struct node *new_node(const char *state, const char *kind, struct node *left,
                             struct node *right)
{
    struct node *node = calloc(1, sizeof *node);
    note(state, kind, (uintptr_t)node);
    node->left = left;
    node->right = right;
    return node;
}

static void *allocate(const char *state, const char *kind, size_t size)
{
    void *block = malloc(size);
    note(state, kind, (uintptr_t)block);
    if (size > 0)
        memset(block, 'x', size < 4096 ? size : 4096);
    return block;
}

/* An int in the stack next to the upper half of an old pointer reads as an address, often as a
 * multiple of 4 GiB. So the block contains none. */
static void lose_huge(size_t size)
{
    char *block = malloc(size);
    if ((uintptr_t)block >> 32 != ((uintptr_t)block + size) >> 32) {
        char *other = malloc(size);
        free(block);
        block = other;
    }
    note("lost", "huge", (uintptr_t)block);
    memset(block, 'x', 4096);
}

/* Loses blocks with sizes of all paths, from all functions. */
static __attribute__((noinline)) void lose_plainly(void)
{
    void *aligned = NULL;
    (void)allocate("lost", "empty", 0);
    (void)allocate("lost", "tiny", 1);
    (void)allocate("lost", "16-bytes", 16);
    (void)allocate("lost", "small", 200);
    (void)allocate("lost", "medium", 5000);
    (void)allocate("lost", "large", 100000);
    lose_huge(40 << 20);
    lose_huge(36 << 20);
    note("lost", "aligned_alloc", (uintptr_t)aligned_alloc(256, 512));
    if (posix_memalign(&aligned, 4096, 100) != 0)
        exit(3);
    note("lost", "posix_memalign", (uintptr_t)aligned);
    note("lost", "strdup", (uintptr_t)strdup("a name that no function has"));
    note("lost", "realloc", (uintptr_t)realloc(malloc(100), 9000));
}

static __attribute__((noinline)) void lose_structures(void)
{
    struct node *list = NULL;
    for (int i = 0; i < 4; i++)
        list = new_node("lost", "list", list, NULL);
    struct node *one = new_node("lost", "cycle", NULL, NULL);
    one->left = new_node("lost", "cycle", one, NULL);
    struct node *self = new_node("lost", "self", NULL, NULL);
    self->right = self;
    struct node *root = new_node("lost", "tree", NULL, NULL);
    root->left = new_node("lost", "tree", NULL, root);
    root->right = new_node("lost", "tree", NULL, root);
}

static void *volatile global; /* volatile: otherwise no store to it would remain */
static pthread_key_t key;

static void *lose_in_thread(void *unused)
{
    (void)unused;
    (void)pthread_setspecific(key, allocate("lost", "ended-thread", 300));
    return NULL;
}

/* Loses the last pointer in less direct ways. */
static __attribute__((noinline)) void lose_by_and_by(void)
{
    pthread_t thread;
    global = allocate("lost", "overwritten-global", 240);
    global = NULL;
    void **holder = malloc(64);
    *holder = allocate("lost", "holder-freed", 250);
    free(holder);
    void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = allocate("lost", "unmapped-holder", 260);
    munmap(page, 4096);
    if (pthread_key_create(&key, NULL) != 0 ||
        pthread_create(&thread, NULL, lose_in_thread, NULL) != 0 || pthread_join(thread, NULL) != 0)
        exit(3);
    char *moved = allocate("kept", "shrunk", 4000);
    global = realloc(moved, 3900);
}

/* Leaves pointers in frames that have ended. */
static __attribute__((noinline)) void lose_in_frames(int depth)
{
    void *volatile local[8] = {allocate("lost", "dead-frame", 270)};
    if (depth > 0)
        lose_in_frames(depth - 1);
    local[1] = local[0];
}

static struct node *kept_list;
static void *volatile kept_in_static, *volatile kept_inside, *volatile kept_tagged;
static __thread void *volatile kept_in_tls;
static void **kept_in_mapping;
static pthread_key_t kept_key;

static __attribute__((noinline)) void keep(void)
{
    for (int i = 0; i < 4; i++)
        kept_list = new_node("kept", "list", kept_list, NULL);
    struct node *hub = kept_list;
    hub->right = new_node("kept", "back", hub, NULL);
    kept_in_static = allocate("kept", "static", 310);
    kept_inside = (char *)allocate("kept", "interior", 320) + 100;
    kept_tagged = (char *)allocate("kept", "tagged", 330) + 3;
    kept_in_tls = allocate("kept", "tls", 340);
    kept_in_mapping = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kept_in_mapping[7] = allocate("kept", "mapping", 350);
    void **huge = allocate("kept", "huge", 40 << 20);
    huge[(20 << 20) / sizeof *huge] = allocate("kept", "in-huge", 360);
    void **large = allocate("kept", "large", 200000);
    large[20000] = huge;
    kept_in_mapping[8] = large;
    char *text = allocate("kept", "environment", 64);
    strcpy(text, "LEAK_TARGET=1");
    putenv(text);
    if (pthread_key_create(&kept_key, NULL) != 0 ||
        pthread_setspecific(kept_key, allocate("kept", "specific", 370)) != 0)
        exit(3);
    (void)on_exit((void (*)(int, void *))(void *)free, allocate("kept", "at-exit", 380));
}

static pthread_barrier_t barrier;

static void *keep_in_thread(void *unused)
{
    (void)unused;
    void *volatile local = allocate("kept", "thread-stack", 390);
    kept_in_tls = allocate("kept", "thread-tls", 400);
    (void)pthread_barrier_wait(&barrier);
    for (;;) {
        (void)pause();
        local = local;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "";
    pthread_t thread;
    /* first: the end of its thread's stack must not be at the start of a huge block */
    lose_by_and_by();
    lose_plainly();
    lose_structures();
    lose_in_frames(10);
    keep();
    void *volatile local = allocate("kept", "main-stack", 410);
    if (pthread_barrier_init(&barrier, NULL, 2) != 0 ||
        pthread_create(&thread, NULL, keep_in_thread, NULL) != 0)
        exit(3);
    (void)pthread_barrier_wait(&barrier);
    print_notes();
    if (strcmp(end, "abort") == 0) {
        const struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        (void)setrlimit(RLIMIT_CORE, &limit);
        abort();
    }
    if (strcmp(end, "wait") == 0)
        (void)pause();
    if (strcmp(end, "exit") == 0)
        exit(0);
    raise(SIGSTOP);
    return local == NULL;
}
