/* Serving the clients of the control socket: see control_socket.h.
 *
 *   client    line incomplete --newline--> answered --all sent--> line incomplete
 *             no progress for CONTROL_STALL_MS with an incomplete line or an unsent answer: dropped
 *             (only the time counts in which this process waits for its clients)
 *
 * A client with an unsent answer is not read, so no client has more than one answer. Each round
 * answers one line of each client, so no client delays the others for long. After an answer that
 * took the time t, no client is answered for 4 t, so all clients together use at most a fifth of a
 * processor. */
#include "watch/control_socket.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>
#include <string.h>

enum {
    REFUSED_REST_MS = 250,
    LONGEST_REST_MS = 60000, /* an answer also takes the time in which the process is stopped */
};

struct control_place control_place;

struct client {
    struct os_own_file file;            /* number -1: the place is free */
    bool last;                          /* the connection is closed after this answer */
    uint64_t heard_ms;                  /* time of the last progress */
    uint64_t stalled_ms;                /* time waited for it since then, without rests */
    size_t held;                        /* bytes of `line` */
    size_t length;                      /* bytes of `answer`; 0: none is being sent */
    size_t sent;                        /* bytes of `answer` that were sent */
    char line[CONTROL_REQUEST_MAX + 2]; /* one byte too many, and the final zero */
    char answer[CONTROL_ANSWER_BYTES];
};

/* The state of the socket. Threads: background thread, unless noted. */
static struct {
    char path[CONTROL_PATH_MAX + 1]; /* const after the options; empty: no socket */
    control_answer *answer;          /* const after the options */
    struct os_own_file listener;
    struct os_file_identity socket; /* the file at the path */
    struct client *clients;         /* CONTROL_CLIENTS entries, or NULL */
    uint64_t rest_until_us;         /* no client is answered before this time */
    bool inherits;                  /* the parent of this process has a socket */
    uint32_t parent;                /* the parent when control_open was called last */
    /* atomic: claimed while the file is made or removed, and for good once the process ends */
    uint32_t file_busy;
} control = {.listener = {.number = -1}};

/* Whether the socket is open. */
static bool control_socket_listens(void) { return load_relaxed(&control.listener.number) >= 0; }

/* Whether a place has a client. */
static bool control_socket_is_there(const struct client *client)
{
    return load_relaxed(&client->file.number) >= 0;
}

bool control_configure(const char *path, size_t length_bytes, control_answer *answer)
{
    if (length_bytes == 0 || length_bytes >= sizeof control.path || path[0] != '/')
        return false;
    memcpy(control.path, path, length_bytes);
    control.path[length_bytes] = '\0';
    control.answer = answer;
    return true;
}

bool control_is_wanted(void) { return control.path[0] != '\0'; }

/* Writes the path of this process's socket.
 *
 * Returns: false if the path is too long. */
static bool control_socket_make_path(char *to)
{
    char number[12];
    size_t digits = format_text(number, sizeof number, "%u", os_process_id());
    size_t used = 0;
    for (const char *from = control.path; *from != '\0'; from++) {
        bool is_number = from[0] == '%' && from[1] == 'p';
        size_t more = is_number ? digits : 1;
        if (used + more >= CONTROL_FULL_PATH_BYTES)
            return false;
        memcpy(to + used, is_number ? number : from, more);
        used += more;
        from += is_number;
    }
    to[used] = '\0';
    return true;
}

/* Opens the socket.
 *
 * Locking: control.file_busy claimed. */
static int control_socket_open(void)
{
    char path[CONTROL_FULL_PATH_BYTES] = "";
    control.parent = os_parent_id();
    size_t bytes = align_up(CONTROL_CLIENTS * sizeof(struct client), os_page_size());
    if (control.clients == NULL)
        control.clients = os_map(bytes);
    int error = control.clients == NULL          ? -ENOMEM
                : control_socket_make_path(path) ? 0
                                                 : -ENAMETOOLONG;
    int listener = error == 0 ? os_socket_listen(path) : error;
    if (listener == -EADDRINUSE && control.inherits)
        return listener; /* the parent or a sibling serves the path: see control_retry */
    if (listener < 0) {
        report("cannot open control socket %s: %s", path[0] != '\0' ? path : control.path,
               text_of_error(-listener));
        return listener;
    }
    os_name(control.clients, bytes, "cairn: control");
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
        store_relaxed(&control.clients[i].file.number, -1);
    int error_of_own = os_file_own(&control.listener, listener);
    if (error_of_own != 0)
        return error_of_own;
    (void)os_path_identify(path, &control.socket);
    memcpy(control_place.path, path, sizeof path);
    /* Pairs with control_socket_remove_file. */
    store_release(&control_place.owner, os_process_id());
    return 0;
}

int control_open(void)
{
    if (!control_is_wanted() || control_socket_listens())
        return 0;
    if (!os_claim(&control.file_busy, 0))
        return -EBUSY; /* the process ends */
    int error = control_socket_open();
    os_unclaim(&control.file_busy);
    return error;
}

void control_retry(void)
{
    if (control.inherits && !control_socket_listens() && os_parent_id() != control.parent)
        (void)control_open();
}

/* Closes the connection of a client and purges the pages of a long answer. */
static void control_socket_drop(struct client *client)
{
    size_t page = os_page_size();
    char *from = (char *)align_up((uintptr_t)client->answer, page);
    char *to = (char *)align_down((uintptr_t)client->answer + sizeof client->answer, page);
    os_file_close_own(&client->file);
    if (client->length + client->sent > page)
        (void)os_purge(from, (size_t)(to - from));
}

/* Removes the file, if this process owns it.
 *
 * Locking: control.file_busy claimed. */
static void control_socket_remove_file(void)
{
    uint32_t own = os_process_id();
    /* Acquire: pairs with control_socket_open. Another process may have replaced the file. */
    if (compare_swap_acq_rel(&control_place.owner, &own, 0u) &&
        os_path_is(control_place.path, &control.socket))
        (void)os_file_remove(control_place.path);
}

/* Another thread may be making or removing the file. The claim is kept, so that no thread makes a
 * file that none would remove. */
at_process_end void control_remove(void)
{
    if (control_is_wanted() && os_claim(&control.file_busy, OS_CLAIM_MS))
        control_socket_remove_file();
}

void control_close(void)
{
    if (!control_socket_listens() || !os_claim(&control.file_busy, 0))
        return; /* without the claim the process ends, and control_remove removes the file */
    control_socket_remove_file();
    os_unclaim(&control.file_busy);
    control_forget(false);
    control.inherits = false;
}

void control_forget(bool served)
{
    for (unsigned i = 0; control_socket_listens() && i < CONTROL_CLIENTS; i++)
        if (control_socket_is_there(&control.clients[i]))
            control_socket_drop(&control.clients[i]);
    control.inherits = control.inherits || served;
    os_file_close_own(&control.listener);
    store_relaxed(&control_place.owner, 0u);
}

static void control_socket_note_progress(struct client *client, uint64_t now_ms)
{
    client->heard_ms = now_ms;
    client->stalled_ms = 0;
}

/* Accepts a connection. If all places are taken, the client with the oldest progress is dropped. */
static void control_socket_welcome(uint64_t now_ms)
{
    int file = os_socket_accept(os_file_own_number(&control.listener));
    if (file < 0) {
        /* With other errors, such as no descriptor left, the connection keeps waiting. */
        if (file != -EAGAIN && file != -EPERM)
            control.rest_until_us = os_now_us() + 1000 * REFUSED_REST_MS;
        return;
    }
    struct client *place = &control.clients[0];
    for (unsigned i = 0; i < CONTROL_CLIENTS && control_socket_is_there(place); i++)
        if (!control_socket_is_there(&control.clients[i]) ||
            control.clients[i].heard_ms < place->heard_ms)
            place = &control.clients[i];
    if (control_socket_is_there(place))
        control_socket_drop(place);
    if (os_file_own(&place->file, file) != 0)
        return;
    place->last = false;
    control_socket_note_progress(place, now_ms);
    place->held = place->length = place->sent = 0;
}

/* Sends more of a client's answer. */
static void control_socket_send_on(struct client *client, uint64_t now_ms)
{
    int sent = os_socket_send(os_file_own_number(&client->file), client->answer + client->sent,
                              client->length - client->sent);
    if (sent == -EAGAIN)
        return;
    if (sent <= 0) {
        control_socket_drop(client);
        return;
    }
    control_socket_note_progress(client, now_ms);
    client->sent += (size_t)sent;
    if (client->sent < client->length)
        return;
    client->length = 0;
    if (client->last)
        control_socket_drop(client);
}

/* Answers the first line of a client, which ends at `end`, and removes it from the buffer. */
static void control_socket_answer_line(struct client *client, char *end, uint64_t now_ms)
{
    uint64_t start_us = os_now_us();
    *end = '\0';
    size_t length = control.answer(client->line, client->answer, sizeof client->answer - 1);
    client->answer[length] = '\n';
    client->length = length + 1;
    client->sent = 0;
    size_t used = smaller_of((size_t)(end + 1 - client->line), client->held);
    memmove(client->line, client->line + used, client->held - used);
    client->held -= used;
    uint64_t end_us = os_now_us();
    uint64_t rest_us = CONTROL_REST_FACTOR * (end_us - start_us);
    control.rest_until_us = end_us + smaller_of(rest_us, 1000 * LONGEST_REST_MS);
    control_socket_send_on(client, now_ms);
}

/* Answers a complete line of a client, or one that is too long.
 *
 * Returns: false if there is no such line. */
static bool control_socket_answer_held(struct client *client, uint64_t now_ms)
{
    char *end = bytes_find(client->line, client->held, '\n');
    if (end == NULL && client->held > CONTROL_REQUEST_MAX) {
        client->last = true; /* the beginning of the next line is not known */
        end = client->line + client->held;
    }
    if (end == NULL)
        return false;
    control_socket_answer_line(client, end, now_ms);
    return true;
}

/* Receives more of a client's line. */
static void control_socket_receive(struct client *client, uint64_t now_ms)
{
    int got = os_socket_receive(os_file_own_number(&client->file), client->line + client->held,
                                CONTROL_REQUEST_MAX + 1 - client->held);
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        control_socket_drop(client);
        return;
    }
    control_socket_note_progress(client, now_ms);
    client->held += (size_t)got;
    (void)control_socket_answer_held(client, now_ms);
}

/* Counts the time that was waited for the clients. */
static void control_socket_count_wait(uint64_t waited_ms)
{
    for (unsigned i = 0; control_socket_listens() && i < CONTROL_CLIENTS; i++)
        control.clients[i].stalled_ms += waited_ms;
}

/* Drops the clients that made no progress for CONTROL_STALL_MS, unless they are idle between
 * requests. */
static void control_socket_drop_stalled(void)
{
    for (unsigned i = 0; control_socket_listens() && i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        bool owes = control_socket_is_there(client) && (client->length != 0 || client->held != 0);
        if (owes && client->stalled_ms >= CONTROL_STALL_MS)
            control_socket_drop(client);
    }
}

/* Lists the descriptors to wait for, with the client of each in `of`. The caller has filled in the
 * first entry, the event. During a rest there is no other.
 *
 * Returns: the number of entries. */
static unsigned control_socket_gather(struct os_wait *entries, struct client **of, bool rests)
{
    unsigned count = 1;
    if (rests || !control_socket_listens())
        return count;
    entries[count++] =
        (struct os_wait){.file = load_relaxed(&control.listener.number), .reads = true};
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        int file = os_file_own_number(&client->file);
        if (file < 0)
            continue;
        bool sends = client->length != 0;
        of[count] = client;
        entries[count++] = (struct os_wait){.file = file, .reads = !sends, .writes = sends};
    }
    return count;
}

/* Whether a complete line is in a buffer: it was received together with an earlier line. */
static bool control_socket_any_held(void)
{
    for (unsigned i = 0; control_socket_listens() && i < CONTROL_CLIENTS; i++) {
        struct client *client = &control.clients[i];
        if (control_socket_is_there(client) && client->length == 0 &&
            bytes_find(client->line, client->held, '\n') != NULL)
            return true;
    }
    return false;
}

/* Serves the clients whose descriptors are ready, and new connections. */
static void control_socket_serve_ready(const struct os_wait *entries, struct client **of,
                                       unsigned count, uint64_t now_ms)
{
    for (unsigned i = 2; i < count; i++) {
        struct client *client = of[i];
        if (client->length != 0 && entries[i].ready)
            control_socket_send_on(client, now_ms);
        else if (client->length == 0 && !control_socket_answer_held(client, now_ms) &&
                 entries[i].ready)
            control_socket_receive(client, now_ms);
    }
    if (count > 1 && entries[1].ready)
        control_socket_welcome(now_ms);
}

/* Opens the socket again after the program closed the listener, or put a file of its own at the
 * number. */
static void control_socket_open_again(void)
{
    for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
        if (control_socket_is_there(&control.clients[i]))
            control_socket_drop(&control.clients[i]);
    (void)control_open();
}

void control_serve(uint64_t until_ms, int event)
{
    struct os_wait entries[CONTROL_CLIENTS + 2];
    struct client *of[CONTROL_CLIENTS + 2] = {NULL};
    for (uint64_t now = os_now_ms(); now < until_ms; now = os_now_ms()) {
        if (control_socket_listens() && os_file_own_number(&control.listener) < 0)
            control_socket_open_again();
        uint64_t now_us = os_now_us();
        bool rests = now_us < control.rest_until_us;
        uint64_t wait = until_ms - now;
        if (rests)
            wait = smaller_of(wait, (control.rest_until_us - now_us) / 1000 + 1);
        else if (control_socket_any_held())
            wait = 0;
        entries[0] = (struct os_wait){.file = event, .reads = true};
        unsigned count = control_socket_gather(entries, of, rests);
        os_wait_for(entries, count, (unsigned)wait);
        if (entries[0].ready)
            return;
        uint64_t waited = os_now_ms();
        if (!rests)
            control_socket_count_wait(waited - now);
        control_socket_serve_ready(entries, of, count, waited);
        control_socket_drop_stalled();
    }
}
