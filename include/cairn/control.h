/* Control of the heap at run time, by names and text: the options that can change, what the heap
 * counts, and actions. docs/CONTROL.md lists the keys, the actions and what the statistics mean.
 *
 * Keys and values are those of CAIRN_OPTIONS (docs/OPTIONS.md), "decay_ms" and "100"; sizes are
 * read back in bytes. Numbers that the heap counts have keys that begin with "stats.".
 *
 *     char text[64];
 *     if (cairn_set("hard_limit", "512M") == 0 && cairn_get("stats.counted_bytes", text, 64) == 0)
 *         printf("%s bytes count\n", text);
 *     cairn_do("purge", NULL);
 *
 * All return 0 or a number of errno, and keep errno: ENOENT, there is no such key or action;
 * EINVAL, the value is not one that the key takes, or an argument is missing; EPERM, the key can
 * only be read; ERANGE, the text does not fit; EBUSY, another thread changes something for longer
 * than a second, or dumps; and what the system says.
 *
 * Nothing is allocated but by "profile.start" (cairn/profile.h) and by what makes a thread. Any
 * thread may call these, several at once; a signal handler none. In a child of fork all of them.
 * Cost: some microseconds; a key of "stats.", the request "stats" and "purge" look at every slab.
 */
#ifndef CAIRN_CONTROL_H
#define CAIRN_CONTROL_H

#include <stddef.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most that a value takes, and an answer, with their ends. */
enum { CAIRN_VALUE_BYTES = 320, CAIRN_ANSWER_BYTES = 65536 };

/* The value of `key` as text in `value`, which has room for `capacity` bytes, its end included. On
 * failure `value` stays as it was. */
CAIRN_API CAIRN_NODISCARD int cairn_get(const char *key, char *value,
                                        size_t capacity) CAIRN_NOEXCEPT;

/* Changes a setting, at once: limits that fell give back what they ask for before this returns. On
 * failure nothing has changed. */
CAIRN_API CAIRN_NODISCARD int cairn_set(const char *key, const char *value) CAIRN_NOEXCEPT;

/* Does `action`: "purge", "thread.purge", "profile.start", "profile.stop", "profile.reset",
 * "profile.dump". `argument` is NULL where there is none. */
CAIRN_API int cairn_do(const char *action, const char *argument) CAIRN_NOEXCEPT;

/* The name of the `index`-th key of all, settings first; NULL behind the last. */
CAIRN_API CAIRN_NODISCARD const char *cairn_key(size_t index) CAIRN_NOEXCEPT;

/* A line as on the control socket, answered in `answer` by a JSON object without a newline: for
 * programs that have a way to the outside of their own. Returns the answer's length; 0 when not
 * even an error fits into `capacity`. */
CAIRN_API size_t cairn_control(const char *request, char *answer, size_t capacity) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
