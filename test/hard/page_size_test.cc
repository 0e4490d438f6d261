// The page size is read at run time: the same binary runs where pages have 16 or 64 KiB.
//
// Such a kernel is not available, so a tracer changes the AT_PAGESZ that the kernel has put on the
// stack of the new program, before its first instruction. The program is linked statically, because
// the dynamic linker would refuse its libraries. The kernel's pages are then smaller than the
// program believes, which does no harm as long as the program uses whole pages. The tracer checks
// that in its system calls.

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <string>

#include "subject.h"

namespace {

struct Call {
  unsigned long number;
  unsigned long arguments[6];
};

#if defined(__x86_64__)
using Registers = struct user_regs_struct;
unsigned long stack_of(const Registers &registers) { return registers.rsp; }
Call call_of(const Registers &registers) {
  return {registers.orig_rax, {registers.rdi, registers.rsi, registers.rdx, registers.r10,
                               registers.r8, registers.r9}};
}
#elif defined(__aarch64__)
using Registers = struct user_regs_struct;
unsigned long stack_of(const Registers &registers) { return registers.sp; }
Call call_of(const Registers &r) {
  return {r.regs[8], {r.regs[0], r.regs[1], r.regs[2], r.regs[3], r.regs[4], r.regs[5]}};
}
#endif

Registers registers_of(pid_t child) {
  Registers registers = {};
  struct iovec io = {&registers, sizeof registers};
  ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &io);
  return registers;
}

unsigned long peek(pid_t child, unsigned long address) {
  errno = 0;
  return static_cast<unsigned long>(ptrace(PTRACE_PEEKDATA, child, address, 0));
}

// At the entry the stack holds argc, argv and NULL, the environment and NULL, then pairs.
bool set_page_size(pid_t child, unsigned long page) {
  unsigned long at = stack_of(registers_of(child)) + sizeof(long);
  for (int ends = 0; ends < 2; at += sizeof(long)) {
    if (peek(child, at) == 0) ends++;
    if (errno) return false;
  }
  for (; peek(child, at) != AT_NULL; at += 2 * sizeof(long)) {
    if (errno) return false;
    if (peek(child, at) == AT_PAGESZ) {
      return ptrace(PTRACE_POKEDATA, child, at + sizeof(long), page) == 0;
    }
  }
  return false;
}

// The reason why a kernel with such pages would refuse the call, or would change more than was
// meant; "" for none.
std::string objection(const Call &call, unsigned long page) {
  const unsigned long address = call.arguments[0], length = call.arguments[1];
  const std::string range = " of " + std::to_string(length) + " bytes";
  switch (call.number) {
    case SYS_mmap:
      if (length % page) return "mmap" + range;
      if ((call.arguments[3] & MAP_FIXED) && address % page) return "mmap, fixed, off a page";
      return "";
    case SYS_munmap:
      return length % page ? "munmap" + range : "";
    case SYS_mprotect:
      return length % page ? "mprotect" + range : "";
    case SYS_madvise:
      return length % page ? "madvise" + range : "";
    case SYS_mremap:
      return length % page || call.arguments[2] % page ? "mremap" + range : "";
    default:
      return "";
  }
}

// Runs the program with the given page size, and checks its output, its end and its system calls.
void run_with_pages(unsigned long page) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    alarm(100);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(77);
    execl(PAGE_PROGRAM, PAGE_PROGRAM, static_cast<char *>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "this process may not trace its children";
  }
  ASSERT_TRUE(WIFSTOPPED(status));
  ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  ASSERT_TRUE(set_page_size(child, page));
  int markers = 0, calls = 0, passing_on = 0;
  bool entering = true;
  for (;;) {
    ptrace(PTRACE_SYSCALL, child, 0, passing_on);
    passing_on = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      passing_on = WSTOPSIG(status);
      continue;
    }
    if (entering) {
      const Call call = call_of(registers_of(child));
      if (call.number == SYS_getppid) markers++;
      // A call has two stops; `entering` selects the first of them.
      if (markers == 1 && call.number != SYS_getppid) {
        calls++;
        EXPECT_EQ(objection(call, page), "");
      }
    }
    entering = !entering;
  }
  EXPECT_EQ(subject::describe_status(status), "exit 0");
  EXPECT_EQ(markers, 2);
  EXPECT_GT(calls, 5) << "the heap made too few system calls to check";
  char text[32] = "";
  ssize_t ignored = read(ends[0], text, sizeof text - 1);
  (void)ignored;
  close(ends[0]);
  EXPECT_EQ(text, std::to_string(page) + "\n");
}

TEST(PageSize, Of4KiB) { run_with_pages(4096); }
TEST(PageSize, Of16KiB) { run_with_pages(16384); }
TEST(PageSize, Of64KiB) { run_with_pages(65536); }

}  // namespace
