// Accesses next to a block in use.
#include "faults.h"

namespace faults {

namespace {

// Writes `count` bytes behind the faulty block, or before it. The block has no slack, so that the
// first byte is not its own under any allocator.
void write_next_to(size_t least, bool before, ptrdiff_t count) {
  const size_t size = without_slack(least);
  const ptrdiff_t from = before ? -1 : static_cast<ptrdiff_t>(size);
  Neighbours blocks(size);
  char *block = opaque(blocks.faulty());
  begun();
  if (from < 0) {
    for (ptrdiff_t i = from; i > from - count; i--) opaque(block)[i] = kWritten;
  } else {
    for (ptrdiff_t i = from; i < from + count; i++) opaque(block)[i] = kWritten;
  }
  const bool damaged = blocks.damaged();
  done(damaged);
  blocks.free_all();
  verdict(!heap_works(size) || damaged);
}

void read_next_to(size_t least, bool before, ptrdiff_t count) {
  const size_t size = without_slack(least);
  const ptrdiff_t from = before ? -1 : static_cast<ptrdiff_t>(size);
  Neighbours blocks(size);
  const volatile char *block = opaque(blocks.faulty());
  ptrdiff_t secrets = 0;
  begun();
  for (ptrdiff_t i = 0; i < count; i++) secrets += block[from < 0 ? from - i : from + i] == kSecret;
  const bool shown = secrets > (count < 8 ? 0 : 1);  // one byte of many may belong to a canary
  done(shown);
  blocks.free_all();
  verdict(shown);
}

template <size_t size, ptrdiff_t count>
void write_behind() {
  write_next_to(size, false, count);
}
template <size_t size, ptrdiff_t count>
void write_before() {
  write_next_to(size, true, count);
}
template <size_t size, ptrdiff_t count>
void read_behind() {
  read_next_to(size, false, count);
}
template <size_t size, ptrdiff_t count>
void read_before() {
  read_next_to(size, true, count);
}

// A loop runs one element too far.
void array_of_calloc() {
  Neighbours blocks(80);
  long *array = static_cast<long *>(opaque(calloc(10, sizeof(long))));
  begun();
  for (int i = 0; i <= opaque(10); i++) array[i] = 0x4141414141414141;
  const bool damaged = blocks.damaged();
  done(damaged);
  free(array);
  blocks.free_all();
  verdict(!heap_works(80) || damaged);
}

void array_of_new() {
  Neighbours blocks(80);
  long *array = opaque(new long[10]);
  begun();
  for (int i = 0; i <= opaque(10); i++) array[i] = 0x4141414141414141;
  const bool damaged = blocks.damaged();
  done(damaged);
  delete[] array;
  blocks.free_all();
  verdict(!heap_works(80) || damaged);
}

// The terminating zero of a string is behind a buffer of the string's length, and overwrites the
// first byte of the neighbour.
void string_end() {
  const size_t size = without_slack(kSmall);
  Neighbours blocks(size);
  char text[2 * kSmall] = {};
  if (size >= sizeof text) _exit(4);
  memset(text, kWritten, size);
  begun();
  strcpy(opaque(blocks.faulty()), opaque(text));
  const bool damaged = blocks.damaged();
  done(damaged);
  blocks.free_all();
  verdict(!heap_works(size) || damaged);
}

// Bytes that are chosen by an attacker who knows glibc: the size of a longer block, where glibc has
// the header of the next block. That block is freed, and blocks of the longer size are taken.
template <size_t count>
void chosen_behind() {
  constexpr uint64_t kChosen = 0x81;  // 128 bytes with a header in use, of glibc
  const size_t size = without_slack(kSmall);
  Neighbours blocks(size);
  char *block = opaque(blocks.faulty());
  begun();
  memcpy(opaque(block) + size, &kChosen, count);
  done(blocks.damaged());
  blocks.free_next();
  for (int i = 0; i < 64; i++) make(kChosen - 1 - sizeof kChosen, kWritten);
  if (blocks.damaged()) verdict(true);  // the attacker's next bytes would hide it from a check
  blocks.free_all();
  verdict(!heap_works(size));
}

// A block of no bytes: every access is next to it.
char *make_empty() {
  static char *blocks[64];
  for (char *&block : blocks) block = make(16, kSecret);
  char *empty = static_cast<char *>(opaque(malloc(opaque(size_t{0}))));
  for (char *&block : blocks) block = make(16, kSecret);
  if (!empty) verdict(false);
  return empty;
}

void read_of_empty() {
  const volatile char *block = make_empty();
  begun();
  const bool shown = block[0] == kSecret;
  done(shown);
  free(const_cast<char *>(block));
  verdict(shown);
}

void write_of_empty() {
  char *block = make_empty();
  begun();
  opaque(block)[0] = kWritten;
  done();
  free(block);
  verdict(!heap_works(16));
}

constexpr char kGroup[] = "next to a block";

const Fault kList[] = {
    {kGroup, "write-behind-1", "write 1 chosen byte behind, 48 bytes", false, chosen_behind<1>},
    {kGroup, "write-behind-8", "write 8 bytes behind", false, write_behind<kSmall, 8>},
    {kGroup, "write-behind-32", "write 32 bytes behind", false, write_behind<kSmall, 32>},
    {kGroup, "write-chosen", "write 8 chosen bytes behind", false, chosen_behind<8>},
    {kGroup, "write-behind-1m", "write 1 MiB behind", false, write_behind<kSmall, kMiB>},
    {kGroup, "write-before-1", "write 1 byte before", false, write_before<kSmall, 1>},
    {kGroup, "write-before-8", "write 8 bytes before", false, write_before<kSmall, 8>},
    {kGroup, "write-before-32", "write 32 bytes before", false, write_before<kSmall, 32>},
    {kGroup, "write-before-1m", "write 1 MiB before", false, write_before<kSmall, kMiB>},
    {kGroup, "read-behind-1", "read 1 byte behind", false, read_behind<kSmall, 1>},
    {kGroup, "read-behind-8", "read 8 bytes behind", false, read_behind<kSmall, 8>},
    {kGroup, "read-behind-32", "read 32 bytes behind", false, read_behind<kSmall, 32>},
    {kGroup, "read-behind-1m", "read 1 MiB behind", false, read_behind<kSmall, kMiB>},
    {kGroup, "read-before-1", "read 1 byte before", false, read_before<kSmall, 1>},
    {kGroup, "read-before-32", "read 32 bytes before", false, read_before<kSmall, 32>},
    {kGroup, "read-before-1m", "read 1 MiB before", false, read_before<kSmall, kMiB>},
    {kGroup, "write-medium-64", "write 64 bytes behind 10,000", false, write_behind<kMedium, 64>},
    {kGroup, "write-medium-8k", "write 8 KiB behind 10,000", false,
     write_behind<kMedium, 8 * kKiB>},
    {kGroup, "write-large-16", "write 16 bytes behind 200 KiB", false, write_behind<kLarge, 16>},
    {kGroup, "write-large-64k", "write 64 KiB behind 200 KiB", false,
     write_behind<kLarge, 64 * kKiB>},
    {kGroup, "write-large-before", "write 32 bytes before 200 KiB", false,
     write_before<kLarge, 32>},
    {kGroup, "read-large-64k", "read 64 KiB behind 200 KiB", false, read_behind<kLarge, 64 * kKiB>},
    {kGroup, "write-huge-8k", "write 8 KiB behind 64 MiB", false, write_behind<kHuge, 8 * kKiB>},
    {kGroup, "array-calloc", "one element too far, array of calloc", false, array_of_calloc},
    {kGroup, "array-new", "one element too far, array of new", false, array_of_new},
    {kGroup, "string-end", "end of a string behind its buffer", false, string_end},
    {kGroup, "empty-read", "read of a block of 0 bytes", false, read_of_empty},
    {kGroup, "empty-write", "write of a block of 0 bytes", false, write_of_empty},
};

}  // namespace

const FaultList kOverflows = {kList, sizeof kList / sizeof *kList};

}  // namespace faults
