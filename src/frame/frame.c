/* The functions of frame.h, and the lists of free descriptors. */
#include "frame/frame.h"

#include "os/process.h"

#include <errno.h>

static struct descriptor_pool lists[DESCRIPTOR_KINDS] = {
    [DESCRIPTOR_STACK] = {.descriptor_bytes = DESCRIPTOR_BYTES_MAX},
    [DESCRIPTOR_STACK_BLOCK] = {.descriptor_bytes = DESCRIPTOR_BYTES_MAX},
    [DESCRIPTOR_FIFO] = {.descriptor_bytes = DESCRIPTOR_FIFO_BYTES_MAX},
    [DESCRIPTOR_RING] = {.descriptor_bytes = DESCRIPTOR_BYTES_MAX},
    [DESCRIPTOR_RING_CHUNK] = {.descriptor_bytes = DESCRIPTOR_BYTES_MAX},
};

void *descriptor_take(enum descriptor_kind kind) { return descriptor_take_from(&lists[kind]); }

void descriptor_give(enum descriptor_kind kind, void *descriptor)
{
    descriptor_give_to(&lists[kind], descriptor);
}

bool frame_checked(void) { return config_debug || memory_marks_active(); }

bool frame_interval_over(uint64_t *interval_start_ms)
{
    uint64_t now = os_now_ms();
    if (likely(now - *interval_start_ms < FRAME_DECAY_MS))
        return false;
    *interval_start_ms = now;
    return true;
}

bool frame_try_again(bool (*out_of_memory)(void *, size_t), void *context, size_t size_bytes)
{
    if (out_of_memory == NULL)
        return false;
    int saved = errno;
    bool again = out_of_memory(context, size_bytes);
    errno = saved;
    return again;
}

void *frame_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *frame_invalid(void)
{
    errno = EINVAL;
    return NULL;
}

void frame_copy_name(char *to, const char *name, const char *otherwise)
{
    format_text(to, FRAME_NAME_BYTES, "%s", name ? name : otherwise);
}
