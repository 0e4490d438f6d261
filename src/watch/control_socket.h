/* The control socket: a client sends a line and receives an answer. docs/reference/OPTIONS.md
 * describes the protocol for clients. This module moves the bytes; a function of front/ interprets
 * the lines.
 *
 * Memory: one mapping, made when the socket is opened. The pages of a long answer are purged when
 * its client leaves.
 *
 * Threads: background thread, except where a comment says otherwise. */
#ifndef CAIRN_WATCH_CONTROL_SOCKET_H
#define CAIRN_WATCH_CONTROL_SOCKET_H

#include "base/compiler.h"

enum {
    CONTROL_PATH_MAX = 100,
    CONTROL_FULL_PATH_BYTES = CONTROL_PATH_MAX + 1,
    CONTROL_CLIENTS = 8,
    CONTROL_REQUEST_MAX = 512,
    CONTROL_ANSWER_BYTES = 65536,
    CONTROL_STALL_MS = 5000, /* a client without progress for this time is dropped */
    CONTROL_REST_FACTOR = 4, /* a rest of this many times its duration follows an answer */
};

/* Where the socket is. Other processes find it through library_layout.c. */
struct control_place {
    uint32_t owner;                     /* atomic: process that owns the file; 0: none */
    char path[CONTROL_FULL_PATH_BYTES]; /* background thread, before `owner` */
};
extern hidden_data struct control_place control_place;

/* Interprets a request: writes its answer, which ends with a zero byte.
 *
 * Returns: the length of the answer; 0 on failure. */
typedef size_t control_answer(const char *request, char *answer, size_t capacity_bytes);

/* Sets the path of the socket and the function that answers. "%p" in the path stands for the number
 * of the process.
 *
 * Threads: one, before there are others.
 * Returns: false if the path is empty, too long or relative. */
bool control_configure(const char *path, size_t length_bytes, control_answer *answer);

/* Whether control_configure has set a path.
 *
 * Threads: any. */
bool control_is_wanted(void);

/* Opens the socket, if a path is set and it is not open. A failure is reported.
 *
 * Returns: 0 or a negative errno; then there is no socket. */
int control_open(void);

/* Opens the socket in a child whose parent served its path, once the parent has ended. */
void control_retry(void);

/* Closes the socket of this process and its connections, and removes its file. */
void control_close(void);

/* Serves clients until the monotonic time `until_ms`, or until `event` is set. Waits while there is
 * nothing to do. */
void control_serve(uint64_t until_ms, int event);

/* Closes the descriptors without removing the file, for the child of a fork: the socket belongs
 * to the parent. `served`: the parent has a socket or is about to open one. If the child has the
 * path of its parent, control_open fails there without a report as long as the parent serves the
 * path. */
void control_forget(bool served);

/* Removes the file of the socket when the process ends. From then on control_open fails with
 * -EBUSY.
 *
 * Threads: any. */
void control_remove(void);

#endif
