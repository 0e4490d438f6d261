/* Control of the heap at run time: options that can change, numbers that the heap counts, actions.
 *
 * Options, numbers and actions have names and values in text, so that a program can pass them on
 * from a configuration file, a command line or a network connection. docs/reference/OPTIONS.md
 * lists the keys, the actions and the meaning of each number.
 *
 * Use this interface to change a limit while the program runs, to read one number, or to offer
 * control over a connection of the program's own. For many numbers at once, cairn_heap_read_stats
 * (cairn/stats.h) is faster. The command `cairn` does this from outside the process, without code
 * in the program.
 *
 * Example:
 *
 *     #include <cairn/control.h>
 *     #include <stdio.h>
 *
 *     int limit_memory(void)
 *     {
 *         char text[CAIRN_VALUE_BYTES];
 *         int error = cairn_set("hard_limit", "512M");
 *         if (error == 0)
 *             error = cairn_get("stats.counted_bytes", text, sizeof text);
 *         if (error == 0)
 *             printf("%s of 512 MiB are in use\n", text);
 *         return error;
 *     }
 *
 * Keys are the options of CAIRN_OPTIONS (docs/reference/OPTIONS.md), such as "decay_ms", and the
 * counted numbers, which begin with "stats.". Values are written as in CAIRN_OPTIONS; sizes are
 * read back in bytes.
 *
 * Threads: any thread may call any function at any time, also in a child of fork.
 *
 * Failure: cairn_get, cairn_set and cairn_do return 0 or a number of errno and leave errno alone:
 *  - ENOENT: no such key or action;
 *  - EINVAL: the key does not accept the value, or an argument is missing;
 *  - EPERM: the key can only be read;
 *  - ERANGE: the text does not fit into the buffer;
 *  - EBUSY: another thread has been changing a setting for more than a second, or writes a profile;
 *  - other numbers come from the system.
 *
 * Cost: some microseconds. Reading a "stats." key, the request "stats" and the action "purge" visit
 * every slab of the heap.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - "profile.start" allocates memory (cairn/profile.h), and settings that start a thread do.
 */
#ifndef CAIRN_CONTROL_H
#define CAIRN_CONTROL_H

#include <stddef.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest value and the largest answer in bytes, with the terminating zero. */
enum { CAIRN_VALUE_BYTES = 320, CAIRN_ANSWER_BYTES = 65536 };

/* Writes the value of `key` as text to `value`, a buffer of `capacity` bytes.
 * Returns: 0 or a number of errno; on failure `value` is unchanged. */
CAIRN_API CAIRN_NODISCARD int cairn_get(const char *key, char *value,
                                        size_t capacity) CAIRN_NOEXCEPT;

/* Changes the setting `key` to `value`. The change takes effect before the call returns: a lower
 * limit has by then returned the memory above it, as far as that is possible.
 * Returns: 0 or a number of errno; on failure nothing has changed. */
CAIRN_API CAIRN_NODISCARD int cairn_set(const char *key, const char *value) CAIRN_NOEXCEPT;

/* Performs `action`: "purge", "thread.purge", "profile.start", "profile.stop", "profile.reset" or
 * "profile.dump". `argument` is NULL for actions without an argument.
 * Returns: 0 or a number of errno. */
CAIRN_API int cairn_do(const char *action, const char *argument) CAIRN_NOEXCEPT;

/* Enumerates the keys by `index`, from 0: first the settings, then the counted numbers.
 * Returns: the name of the key, a constant; NULL after the last one. */
CAIRN_API CAIRN_NODISCARD const char *cairn_key(size_t index) CAIRN_NOEXCEPT;

/* Answers `request`, a line in the language of the control socket (docs/reference/OPTIONS.md), with
 * a JSON object without a newline. `answer` is a buffer of `capacity` bytes; CAIRN_ANSWER_BYTES are
 * always enough. Use cairn_control to offer control over a connection of the program's own.
 * Returns: the length of the answer; 0 if not even an error message fits. */
CAIRN_API size_t cairn_control(const char *request, char *answer, size_t capacity) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
