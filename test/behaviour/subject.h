// Helpers for programs that test a malloc from outside.
//
// Owns: hiding values from the optimiser, reading facts about the process, running code in a child
// process with a time limit, and running other programs with their output captured. Nothing here
// names Cairn: the programs use the malloc of their process.
//
// Threads: to be called from one thread at a time.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace subject {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kGiB = 1024 * 1024 * 1024;

// The exit status of a child after a failed REQUIRE.
constexpr int kFailedExit = 99;

// Hides a value from the optimiser, so that it neither folds nor warns about later code.
template <typename T>
inline T opaque(T value) {
  asm volatile("" : "+r"(value) : : "memory");
  return value;
}

// Reads a file of /proc without using malloc.
// Returns: the number of bytes.
inline size_t read_file(const char *path, char *buffer, size_t capacity) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  if (fd >= 0) {
    ssize_t got;
    while (length + 1 < capacity && (got = read(fd, buffer + length, capacity - 1 - length)) > 0) {
      length += static_cast<size_t>(got);
    }
    close(fd);
  }
  buffer[length] = 0;
  return length;
}

// A numeric field of /proc/self/status such as "VmRSS:" (KiB), or -1.
inline long status_field(const char *field, int base = 10) {
  char text[8192];
  read_file("/proc/self/status", text, sizeof text);
  const char *at = strstr(text, field);
  return at ? static_cast<long>(strtoull(at + strlen(field), nullptr, base)) : -1;
}

inline long rss_kib() { return status_field("VmRSS:"); }
inline long peak_rss_kib() { return status_field("VmHWM:"); }
inline long virtual_kib() { return status_field("VmSize:"); }

// Fills and checks memory with bytes that depend on a seed.
inline unsigned char pattern(size_t at, unsigned seed) {
  return static_cast<unsigned char>(at * 131 + seed * 29 + 7);
}
inline void fill(void *block, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) static_cast<unsigned char *>(block)[i] = pattern(i, seed);
}
inline bool holds(const void *block, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    if (static_cast<const unsigned char *>(block)[i] != pattern(i, seed)) return false;
  }
  return true;
}
inline bool is_zero(const void *block, size_t size) {
  const unsigned char *bytes = static_cast<const unsigned char *>(block);
  return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

// Prints one line on stderr and exits, without using malloc: for child processes and small stacks.
[[noreturn]] inline void fail_child(const char *file, int line, const char *what) {
  char text[256];
  int length = snprintf(text, sizeof text, "%s:%d: not so: %s (errno %d)\n", file, line, what,
                        errno);
  ssize_t ignored = write(STDERR_FILENO, text, static_cast<size_t>(length));
  (void)ignored;
  _exit(kFailedExit);
}
#define REQUIRE(condition) \
  ((condition) ? (void)0 : subject::fail_child(__FILE__, __LINE__, #condition))

// Sets the soft limit.
inline void set_limit(int resource, size_t bytes) {
  struct rlimit bounds;
  REQUIRE(getrlimit(resource, &bounds) == 0);
  bounds.rlim_cur = bytes;
  REQUIRE(setrlimit(resource, &bounds) == 0);
}

// The present use that counts towards a limit.
inline size_t in_use(int resource) {
  const char *field = resource == RLIMIT_AS ? "VmSize:" : "VmData:";
  return static_cast<size_t>(status_field(field)) * kKiB;
}

inline std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exit " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return std::string("signal ") + strsignal(WTERMSIG(status));
  return "status " + std::to_string(status);
}

// Runs `body` in a child process.
// Returns: "exit 0" if the body returned, "signal Alarm clock" if it did not within `seconds`, and
// so on.
template <typename Body>
std::string in_child(unsigned seconds, Body body) {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    // An exception ends the child here; it must not continue with the work of the caller.
    [&body]() noexcept { body(); }();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return describe_status(status);
}

// In a GoogleTest case: runs the lambda in a child process, which must exit with 0.
#define EXPECT_CHILD(seconds, ...)                                             \
  if (const std::string child_end = subject::in_child(seconds, __VA_ARGS__);   \
      child_end == "exit 0") {                                                 \
  } else                                                                       \
    ADD_FAILURE() << "the child ended with " << child_end << ' '

struct Outcome {
  std::string end;  // in the form of in_child()
  std::string out;
  std::string err;
};

// Runs a program to its end, in a new process with descriptors 0, 1 and 2 only. `prepare` is called
// between fork and exec. A NULL `environment` means that of the caller.
template <typename Prepare>
Outcome run_program(const std::vector<std::string> &command, char *const *environment,
                    unsigned seconds, Prepare prepare) {
  std::vector<char *> arguments;
  for (const std::string &word : command) arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  FILE *out = tmpfile();
  FILE *err = tmpfile();
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    if (dup2(fileno(out), STDOUT_FILENO) < 0 || dup2(fileno(err), STDERR_FILENO) < 0) _exit(126);
    for (int fd = 3; fd < 256; fd++) close(fd);
    alarm(seconds);
    prepare();
    execvpe(arguments[0], arguments.data(), environment ? environment : environ);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  auto text_of = [](FILE *file) {
    std::string text;
    rewind(file);
    for (int c; (c = fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
    fclose(file);
    return text;
  };
  Outcome outcome{describe_status(status), text_of(out), text_of(err)};
  return outcome;
}

inline Outcome run_program(const std::vector<std::string> &command, unsigned seconds = 100) {
  return run_program(command, nullptr, seconds, [] {});
}

}  // namespace subject
