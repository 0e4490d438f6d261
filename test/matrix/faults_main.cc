// cairn-faults --list     prints one line a fault: name, group, title, whether it is a bad free
// cairn-faults --owner    prints the file that malloc is from
// cairn-faults NAME       commits the fault; faults.h documents the output
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "faults.h"

namespace faults {

namespace {

constexpr unsigned kSecondsMost = 60;
constexpr size_t kProbeMost = 20000;  // more blocks than the quarantines of peers hold of one size

char *g_probes[kProbeMost];
size_t g_probe_size;
size_t g_probe_first;  // index of the first one in use
size_t g_probe_end;

bool is_decoy(const char *block, size_t size, const void *decoy) {
  const char *start = static_cast<const char *>(decoy);
  return decoy && block + size > start && block < start + 4096;
}

// Each probe is marked with its number at both ends, which reveals memory that was given out twice.
bool probes_are_whole() {
  for (size_t i = g_probe_first; i < g_probe_end; i++) {
    if (memcmp(g_probes[i], &i, sizeof i) != 0 ||
        memcmp(g_probes[i] + g_probe_size - sizeof i, &i, sizeof i) != 0) {
      return false;
    }
  }
  return true;
}

bool probe(size_t size, size_t count, const void *decoy) {
  g_probe_size = size;
  g_probe_first = g_probe_end = 0;
  for (size_t i = 0; i < count; i++) {
    g_probes[i] = static_cast<char *>(opaque(malloc(size)));
    if (!g_probes[i] || is_decoy(g_probes[i], size, decoy)) return !harm(true);
    memset(g_probes[i], kWritten, size > kMedium ? 4096 : size);
    memcpy(g_probes[i], &i, sizeof i);
    memcpy(g_probes[i] + size - sizeof i, &i, sizeof i);
    g_probe_end = i + 1;
  }
  if (harm(!probes_are_whole())) return false;
  while (g_probe_first < g_probe_end) free(g_probes[g_probe_first++]);
  return true;
}

// Runs when a check of the allocator ends the process.
void look_once_more(int signal) {
  tell(probes_are_whole() && !Neighbours::any_damaged() ? SPARED : HARMED);
  raise(signal);
}

void watch_for_the_end() {
  struct sigaction action = {};
  action.sa_handler = look_once_more;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGABRT, &action, nullptr);
}

struct Task {
  void (*body)(void *);
  void *argument;
};

void *run_task(void *task) {
  static_cast<Task *>(task)->body(static_cast<Task *>(task)->argument);
  return nullptr;
}

}  // namespace

bool heap_works(size_t size, const void *decoy) {
  const size_t count = size > kMiB ? 4 : size > kMedium ? 40 : size > 4096 ? 1000 : kProbeMost;
  return probe(size, count, decoy) && probe(24, 1000, decoy) && probe(3000, 100, decoy);
}

void in_thread(void (*body)(void *), void *argument) {
  Task task = {body, argument};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, run_task, &task) != 0) _exit(5);
  pthread_join(thread, nullptr);
}

namespace {

const FaultList *const kAll[] = {&kFrees, &kSizes, &kOverflows, &kUses};

void list() {
  for (const FaultList *part : kAll) {
    for (size_t i = 0; i < part->count; i++) {
      const Fault &fault = part->faults[i];
      printf("%s\t%s\t%s\t%d\n", fault.name, fault.group, fault.title, fault.bad_free);
    }
  }
}

int commit(const char *name) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  alarm(kSecondsMost);
  watch_for_the_end();
  // glibc gives each block of this size a mapping, until the program frees one.
  free(make(kMiB, kOwn));
  for (const FaultList *part : kAll) {
    for (size_t i = 0; i < part->count; i++) {
      if (strcmp(part->faults[i].name, name) == 0) part->faults[i].commit();
    }
  }
  fprintf(stderr, "cairn-faults: no fault is called %s\n", name);
  return 2;
}

}  // namespace

}  // namespace faults

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: cairn-faults --list | --owner | NAME\n");
    return 2;
  }
  if (strcmp(argv[1], "--list") == 0) {
    faults::list();
    return 0;
  }
  if (strcmp(argv[1], "--owner") == 0) {
    Dl_info place;
    puts(dladdr(reinterpret_cast<void *>(&malloc), &place) ? place.dli_fname : "?");
    return 0;
  }
  return faults::commit(argv[1]);
}
