/* The persistent heap's files: what lies where, in the byte order of the machine.
 *
 * The heap's file: two headers, of which the sound one with the higher turn counts, then the data,
 * which is what the program sees mapped: the state, and behind it TLSF's structure and blocks. The
 * log's files (PATH.log0, PATH.log1): chunks, one behind the other, each
 *
 *     head | page numbers | images of these pages | zeros up to a multiple of 512
 *
 * A commit is a row of chunks with the same sequence number, numbered from 0, of which the last one
 * says so. A chunk's checksum covers all of it, and begins with that of the chunk before, the first
 * of a commit with the log's seed: so a commit is whole exactly if its last chunk is found. The
 * seed is another one each time the heap is opened: so what a crash lost is not found later, behind
 * a commit that has taken the number of the lost one before it.
 */
#ifndef CAIRN_REGION_PERSIST_FORMAT_H
#define CAIRN_REGION_PERSIST_FORMAT_H

#include "base/bits.h"
#include "cairn/persist.h"

#define PERSIST_MAGIC       0x504145484e524143u /* CARNHEAP */
#define PERSIST_CHUNK_MAGIC 0x4b4e5548434e5243u /* CRNCHUNK */
#define PERSIST_STATE_MAGIC 0x45544154534e5243u /* CRNSTATE */
#define PERSIST_BYTE_ORDER  0x0102030405060708u

enum {
    PERSIST_VERSION = 1,
    PERSIST_SECTOR_BYTES = 512,
    PERSIST_HEADER_BYTES = 512,
    PERSIST_HEADER_SPACING_BYTES = 32768,
    PERSIST_DATA_OFFSET = 65536, /* a multiple of every page size */
    PERSIST_CHUNK_MOST_BYTES = 1 << 20,
    PERSIST_CHUNK_WRITTEN_BYTES = 1 << 18,
    PERSIST_STATE_BYTES = 256,
};

/* Whether the log has to be there. */
enum persist_log_use { PERSIST_CLOSED = 1, PERSIST_LOGGING = 2 };

struct persist_header {
    uint64_t magic;
    uint32_t version;
    uint32_t page_bytes;
    uint64_t byte_order;
    uint64_t identity;   /* random, const for the life of the heap */
    uint64_t turn;       /* counts header writes; lies in slot turn % 2 */
    uint64_t checkpoint; /* the last commit that is wholly in the data */
    uint64_t data_bytes; /* the file has at least so many behind PERSIST_DATA_OFFSET */
    uint64_t address;    /* of the last mapping */
    uint64_t log_use;
    uint64_t session; /* random, of the opening whose commits the log holds */
    uint64_t reserved[53];
    uint64_t checksum; /* of all before */
};

static_check(sizeof(struct persist_header) == PERSIST_HEADER_BYTES, "one sector");
static_check(offsetof(struct persist_header, checksum) == PERSIST_HEADER_BYTES - 8, "");

struct persist_chunk {
    uint64_t magic;
    uint64_t checksum; /* of all behind it, up to the zeros; begins with `before` */
    uint64_t before;   /* the checksum of the commit's chunk before, or the log's seed */
    uint64_t sequence;
    uint64_t durable;     /* the last commit known to be durable when this was written */
    uint32_t number;      /* of the chunk within its commit */
    uint32_t pages;       /* images in this chunk */
    uint64_t total_pages; /* of the commit, in its last chunk; else 0 */
    uint64_t is_last;     /* 0 or 1 */
};

enum { PERSIST_CHUNK_SUMMED_FROM = 16 }; /* the checksum's first byte: `before` */

static_check(sizeof(struct persist_chunk) == 64, "");
static_check(offsetof(struct persist_chunk, before) == PERSIST_CHUNK_SUMMED_FROM, "");

/* What the checksums of the log's commits begin with. */
inline_always uint64_t log_seed(const struct persist_header *header)
{
    return header->identity + header->session;
}

/* At the start of the data; TLSF's structure lies behind it. */
struct persist_state {
    uint64_t magic;
    uint64_t size_bytes; /* of the data that the heap uses; at most the header's data_bytes */
    uint64_t root_count;
    cairn_offset roots; /* the list's first */
    uint64_t reserved[PERSIST_STATE_BYTES / 8 - 4];
};

static_check(sizeof(struct persist_state) == PERSIST_STATE_BYTES, "");

/* A root, in a block of its own. */
struct persist_root {
    cairn_offset next;
    cairn_offset block;
    uint64_t name_bytes; /* without the 0 */
    char name[];
};

enum { PERSIST_NAME_MOST = 255 };

inline_always uint32_t chunk_pages_most(size_t page_bytes)
{
    return (uint32_t)((PERSIST_CHUNK_MOST_BYTES - 4096) / (page_bytes + sizeof(uint64_t)));
}

/* Of the chunks that this library writes: they stay in the processor's cache from the copy over the
 * checksum to the write, and the disk is at work while the next one is built. */
inline_always uint32_t chunk_pages_written(size_t page_bytes)
{
    uint32_t most = chunk_pages_most(page_bytes);
    uint32_t wanted = (uint32_t)(PERSIST_CHUNK_WRITTEN_BYTES / page_bytes);
    return wanted == 0 ? 1 : wanted < most ? wanted : most;
}

/* Without the zeros behind it. */
inline_always size_t chunk_bytes(uint32_t pages, size_t page_bytes)
{
    return sizeof(struct persist_chunk) + pages * (sizeof(uint64_t) + page_bytes);
}

inline_always size_t chunk_room(uint32_t pages, size_t page_bytes)
{
    return align_up(chunk_bytes(pages, page_bytes), PERSIST_SECTOR_BYTES);
}

/* Of image `index` of a chunk, from the chunk's start. */
inline_always size_t chunk_image_offset(uint32_t pages, uint32_t index, size_t page_bytes)
{
    return sizeof(struct persist_chunk) + pages * sizeof(uint64_t) + index * page_bytes;
}

#endif
