/* The layout of the persistent heap's files, in the byte order of the machine.
 *
 * The heap's file (PATH) has two headers, of which the sound one with the higher turn counts.
 * Between them is the mark, which holds a commit that was acknowledged. Behind them are the data,
 * which the program sees mapped: the state, then TLSF's structure and blocks.
 *
 * The log's files (PATH.log0, PATH.log1) have a head, which names the opening of the heap to which
 * the log belongs. Behind it are chunks, without gaps, each
 *
 *     head | page numbers | images of these pages | zeros up to a multiple of 512
 *
 * A commit is a row of chunks with the same sequence number, numbered from 0, with a flag in the
 * last one. A chunk's checksum covers the whole chunk, and also the checksum of the chunk before it
 * in the commit, or the log's seed in the first chunk. So a commit is whole exactly if its last
 * chunk is found. The seed is different in each opening of the heap. So a commit that a crash lost
 * is not found later, behind a new commit that has the number of the lost one's predecessor.
 */
#ifndef CAIRN_REGION_PERSIST_FORMAT_H
#define CAIRN_REGION_PERSIST_FORMAT_H

#include "base/bits.h"
#include "cairn/persist.h"

#define PERSIST_MAGIC       0x504145484e524143u /* CARNHEAP */
#define PERSIST_CHUNK_MAGIC 0x4b4e5548434e5243u /* CRNCHUNK */
#define PERSIST_STATE_MAGIC 0x45544154534e5243u /* CRNSTATE */
#define PERSIST_MARK_MAGIC  0x214b52414d4e5243u /* CRNMARK! */
#define PERSIST_LOG_MAGIC   0x21474f4c534e5243u /* CRNSLOG! */
#define PERSIST_BYTE_ORDER  0x0102030405060708u

enum {
    PERSIST_VERSION = 2,
    PERSIST_SECTOR_BYTES = 512,
    PERSIST_HEADER_BYTES = 512,
    PERSIST_HEADER_SPACING_BYTES = 32768,
    PERSIST_MARK_OFFSET = 16384, /* offset in the heap's file */
    PERSIST_LOG_START = 4096,    /* offset of the first chunk in a log's file */
    PERSIST_DATA_OFFSET = 65536, /* offset in the heap's file; a multiple of every page size */
    PERSIST_CHUNK_MAX_BYTES = 1 << 20,
    PERSIST_CHUNK_WRITTEN_BYTES = 1 << 18,
    PERSIST_STATE_BYTES = 256,
};

/* Whether the heap needs its log. */
enum persist_log_use { PERSIST_CLOSED = 1, PERSIST_LOGGING = 2 };

struct persist_header {
    uint64_t magic;
    uint32_t version;
    uint32_t page_bytes;
    uint64_t byte_order;
    uint64_t identity;   /* random, const for the life of the heap */
    uint64_t turn;       /* number of header writes; the slot is turn % 2 */
    uint64_t checkpoint; /* number of the last commit that is completely in the data */
    uint64_t data_bytes; /* the file has at least this many behind PERSIST_DATA_OFFSET */
    uint64_t address;    /* address of the last mapping */
    uint64_t log_use;
    uint64_t session; /* random; of the opening whose commits the log holds */
    uint64_t opening; /* number of openings for writing, that of `session` included */
    uint64_t reserved[52];
    uint64_t checksum; /* of all fields before */
};

static_check(sizeof(struct persist_header) == PERSIST_HEADER_BYTES, "one sector");
static_check(offsetof(struct persist_header, checksum) == PERSIST_HEADER_BYTES - 8, "");

/* The mark: a lower limit for the commits that the logs must hold. The mark is written after each
 * fdatasync of the log, without an fdatasync of its own, so the logs may hold later commits. */
struct persist_mark {
    uint64_t magic;
    uint64_t identity;     /* of the heap */
    uint64_t acknowledged; /* number of a commit that was durable when this was written */
    uint64_t reserved[60];
    uint64_t checksum; /* of all fields before */
};

static_check(sizeof(struct persist_mark) == PERSIST_SECTOR_BYTES, "written whole or not");

/* The head of a log's file. The head is durable before the header says PERSIST_LOGGING, and is not
 * written again in the same opening. */
struct persist_log_head {
    uint64_t magic;
    uint64_t identity; /* of the heap */
    uint64_t session;  /* that of the header */
    uint64_t opening;  /* that of the header */
    uint64_t index;    /* 0 or 1: the number of the log's file */
    uint64_t begun;    /* the header's checkpoint at that time: the heap's file holds this commit */
    uint64_t reserved[57];
    uint64_t checksum; /* of all fields before */
};

static_check(sizeof(struct persist_log_head) == PERSIST_SECTOR_BYTES, "written whole or not");

/* The head of a chunk. */
struct persist_chunk {
    uint64_t magic;
    uint64_t checksum; /* from `before` up to the zeros, with the log's seed */
    /* checksum of the commit's previous chunk; in its first chunk the log's seed */
    uint64_t before;
    uint64_t sequence;
    uint64_t durable;     /* number of the last commit known to be durable when this was written */
    uint32_t number;      /* number of the chunk in its commit */
    uint32_t pages;       /* number of images in this chunk */
    uint64_t total_pages; /* in the last chunk: number of pages of the commit; else 0 */
    uint64_t is_last;     /* 0 or 1 */
};

enum { PERSIST_CHUNK_SUMMED_FROM = 16 }; /* offset of `before` */

static_check(sizeof(struct persist_chunk) == 64, "");
static_check(offsetof(struct persist_chunk, before) == PERSIST_CHUNK_SUMMED_FROM, "");

/* The seed of the checksums in the log of an opening. */
inline_always uint64_t log_seed(const struct persist_header *header)
{
    return header->identity + header->session;
}

/* The state, at the start of the data. TLSF's structure is behind it. */
struct persist_state {
    uint64_t magic;
    uint64_t size_bytes; /* size of the data that the heap uses; at most the header's data_bytes */
    uint64_t root_count;
    cairn_offset roots; /* the first root */
    uint64_t reserved[PERSIST_STATE_BYTES / 8 - 4];
};

static_check(sizeof(struct persist_state) == PERSIST_STATE_BYTES, "");

/* A root, in a block of its own, with its name behind it. */
struct persist_root {
    cairn_offset next;
    cairn_offset block;
    uint64_t name_bytes; /* without the terminating 0 */
    char name[];
};

enum { PERSIST_NAME_MAX = 255 };

/* The maximum number of pages in a chunk that this library accepts. */
inline_always uint32_t chunk_pages_most(size_t page_bytes)
{
    return (uint32_t)((PERSIST_CHUNK_MAX_BYTES - 4096) / (page_bytes + sizeof(uint64_t)));
}

/* The maximum number of pages in a chunk that this library writes. Such a chunk stays in the
 * processor's cache from the copy through the checksum to the write, and the disk works while the
 * next chunk is built. */
inline_always uint32_t chunk_pages_written(size_t page_bytes)
{
    uint32_t most = chunk_pages_most(page_bytes);
    uint32_t wanted = (uint32_t)(PERSIST_CHUNK_WRITTEN_BYTES / page_bytes);
    return wanted == 0 ? 1 : wanted < most ? wanted : most;
}

/* The size of a chunk without the zeros at its end. */
inline_always size_t chunk_bytes(uint32_t pages, size_t page_bytes)
{
    return sizeof(struct persist_chunk) + pages * (sizeof(uint64_t) + page_bytes);
}

/* The size of a chunk with the zeros at its end. */
inline_always size_t chunk_room(uint32_t pages, size_t page_bytes)
{
    return align_up(chunk_bytes(pages, page_bytes), PERSIST_SECTOR_BYTES);
}

/* The offset of image `index` from the chunk's start. */
inline_always size_t chunk_image_offset(uint32_t pages, uint32_t index, size_t page_bytes)
{
    return sizeof(struct persist_chunk) + pages * sizeof(uint64_t) + index * page_bytes;
}

#endif
