// Common small programs under `ulimit -v 262144` and under a data limit of 64 MiB.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "subject.h"

namespace {

using subject::kMiB;

struct Everyday {
  const char *name;
  std::vector<std::string> command;
  const char *expected;
};

std::string python() {
  return access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
}

const Everyday kPrograms[] = {
    {"sh",
     {"/bin/sh", "-c",
      "i=0; s=; while [ $i -lt 20000 ]; do i=$((i+1)); s=$s$((i%10)); done; "
      "echo ${#s} $(echo piped | cat)"},
     "20000 piped\n"},
    {"perl",
     {"perl", "-e",
      "my %h; $h{$_ % 30000} .= $_ for 1..100000; my $s = 'x' x 20_000_000; "
      "my @k = sort { $a <=> $b } keys %h; print scalar(@k), ' ', length($s), ' ', "
      "join(',', map { length $h{$_} } @k[0..4]), \"\\n\""},
     "30000 20000000 15,16,16,16,16\n"},
    {"python3",
     {python(), "-S", "-c",
      "import json, threading\n"
      "threading.stack_size(1 << 19)\n"
      "d = {str(i): [i] * 5 for i in range(20000)}\n"
      "e = json.loads(json.dumps(d))\n"
      "out = []\n"
      "def work(n): out.append(len(b''.join(bytes(k % 500) for k in range(10000))))\n"
      "t = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
      "[x.start() for x in t]; [x.join() for x in t]\n"
      "try:\n"
      "  bytearray(1 << 40)\n"
      "except MemoryError:\n"
      "  out.append('MemoryError')\n"
      "print(d == e, out)"},
     "True [2495000, 2495000, 2495000, 2495000, 'MemoryError']\n"},
    {"small_program", {SMALL_PROGRAM, "threads"}, ""},
};

class Everydays : public testing::TestWithParam<Everyday> {};

void run_under(int resource, size_t bytes) {
  const Everyday &program = Everydays::GetParam();
  if (program.command[0][0] != '/' &&
      subject::run_program({"sh", "-c", "command -v " + program.command[0]}).end != "exit 0") {
    GTEST_SKIP() << program.name << " is not installed";
  }
  const subject::Outcome outcome =
      subject::run_program(program.command, nullptr, 100, [resource, bytes] {
        const struct rlimit limit = {bytes, bytes};
        REQUIRE(setrlimit(resource, &limit) == 0);
      });
  EXPECT_EQ(outcome.end, "exit 0") << outcome.err;
  EXPECT_EQ(outcome.out, program.expected) << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

TEST_P(Everydays, InAddressSpaceOf256MiB) { run_under(RLIMIT_AS, 256 * kMiB); }
TEST_P(Everydays, InDataOf64MiB) { run_under(RLIMIT_DATA, 64 * kMiB); }

INSTANTIATE_TEST_SUITE_P(Programs, Everydays, testing::ValuesIn(kPrograms),
                         [](const auto &of) { return std::string(of.param.name); });

// Down to less than one mebibyte: the address space that a heap reserves at once decides whether it
// can start.
TEST(FirstBlock, NeedsHardlyAnyAddresses) {
  for (const char *kib : {"10240", "4096", "1024", "512"}) {
    const subject::Outcome outcome = subject::run_program({FIRST_BLOCK, kib});
    EXPECT_EQ(outcome.end, "exit 0") << kib << " KiB";
  }
}

}  // namespace
