/* Replay programs from events that a test defines, played in its own process. */
#ifndef TEST_REPLAY_KIT_H
#define TEST_REPLAY_KIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kit_operation { KIT_ALLOC, KIT_FREE, KIT_RESIZE, KIT_FROM, KIT_TO, KIT_FAILED };

struct kit_event {
    enum kit_operation operation;
    uint32_t thread;
    uint64_t address, size;
    uint32_t stack;
    unsigned align_log2;
    int zeroed;
};

struct kit_program {
    uint64_t events, slots, windows, waits, peak_live_bytes, end_live_bytes, unknown, lost, bytes;
    uint32_t threads;
};

struct kit_result {
    uint64_t start_bytes, peak_bytes, samples, events, cpu_ns;
};

/* Begins a program. `policies` is the path of a file for --site-policy, or NULL. */
void kit_begin(const char *path, const char *policies);
void kit_add(const struct kit_event *event);
struct kit_program kit_finish(void);

struct kit_result kit_play(const char *path, int empty, uint32_t samples);
/* Plays the program with work between the records. */
struct kit_result kit_play_with_work(const char *path, int in_line, uint32_t work_ns);
/* Plays the sites of policies by malloc and fills blocks: the reference for savings. */
struct kit_result kit_play_by_malloc(const char *path);

#ifdef __cplusplus
}
#endif
#endif
