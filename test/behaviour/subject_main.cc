// main() of the GoogleTest programs that test the malloc of their process.
//
// The program first checks that the malloc is the intended one: a test that ran on the system's
// malloc by mistake would pass and prove nothing. CAIRN_TEST_SUBJECT is the path of the preloaded
// library, "self" (linked in), "system", or unset (any).

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

// Finds the path of the object that defines malloc.
bool malloc_home(char *path) {
  Dl_info info;
  struct link_map *map = nullptr;
  void *address = dlsym(RTLD_DEFAULT, "malloc");
  if (!dladdr1(address, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP)) return false;
  const char *name = map->l_name[0] ? map->l_name : "/proc/self/exe";
  return realpath(name, path) != nullptr;
}

bool subject_is_as_meant() {
  const char *meant = getenv("CAIRN_TEST_SUBJECT");
  if (!meant) return true;
  char home[PATH_MAX], expected[PATH_MAX];
  if (!malloc_home(home)) return false;
  if (strcmp(meant, "system") == 0) return strstr(home, "/libc") != nullptr;
  if (!realpath(strcmp(meant, "self") == 0 ? "/proc/self/exe" : meant, expected)) return false;
  if (strcmp(home, expected) == 0) return true;
  fprintf(stderr, "malloc is that of %s, not of %s\n", home, expected);
  return false;
}

}  // namespace

int main(int argc, char **argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!subject_is_as_meant()) return 98;
  return RUN_ALL_TESTS();
}
