// Fuzzing of the files of the persistent heap: those of a heap in one of several states (closed,
// with a log, with a sealed half of it) are flipped, cut, grown, mixed and exchanged, in headers,
// log and metadata, and in part signed again with the right checksum. An open, for reading or
// writing, is refused with a sentence and a matching errno, or gives a heap that can be inspected
// everywhere, and used if its check finds nothing.
//
// If only headers and lengths were damaged, or one half of the log, and nothing was signed again, a
// heap that opens holds one of the former commits. Damage to both halves, or to a half and a
// header, can hide that some data are newer, since data have no checksums.

#include <cairn/tlsf.h>

#include <vector>

#include "fuzz/persist_image.h"

extern "C" {
#include "base/checksum.h"
#include "os/memory.h"
}

namespace
{

using fuzz::HeapImage;
using fuzz::Input;
using fuzz::require;

constexpr size_t kWords = 8; // of the block whose content identifies the commit
constexpr size_t kCommits = 12;

// States of one heap: closed, and as left by kills, early, late, with a sealed segment.
struct Bases {
    std::vector<HeapImage> images;
    uint64_t identity = 0;
};

void count_in(cairn_persist *heap, uint64_t *words, uint64_t number)
{
    for (size_t i = 0; i < kWords; i++)
        words[i] = number * (i + 1);
    void *block = cairn_allocator_alloc(cairn_persist_allocator(heap), number * 700, 16);
    require(block != nullptr, "a block");
    memset(block, static_cast<int>(number), number * 700);
    if (number % 3 == 0)
        cairn_allocator_free(cairn_persist_allocator(heap), block, 0);
    require(cairn_persist_commit(heap) == 0, "commit");
}

// Cuts the logs to their written part and a little more.
void shorten(HeapImage &image)
{
    for (size_t i = 1; i < fuzz::kHeapFiles; i++) {
        const size_t used = image.bytes[i].find_last_not_of('\0') + 1;
        image.bytes[i].resize(std::min(image.bytes[i].size(), used + 2048));
    }
}

Bases make_bases()
{
    Bases bases;
    const char *why = nullptr;
    cairn_persist *heap = fuzz::open_heap(CAIRN_PERSIST_CREATE, &why);
    require(heap != nullptr, why ? why : "open");
    bases.identity = heap->header.identity;
    const auto keep = [&] {
        bases.images.push_back(fuzz::read_image());
        shorten(bases.images.back());
    };
    keep();
    auto *words = static_cast<uint64_t *>(
        cairn_allocator_alloc(cairn_persist_allocator(heap), kWords * 8, 16));
    cairn_persist_set_root(heap, "words", words);
    cairn_persist_set_root(heap, "nothing", nullptr);
    for (uint64_t number = 1; number <= kCommits; number++) {
        count_in(heap, words, number);
        if (number % 4 == 2)
            keep();
    }
    require(cairn_persist_close(heap) == 0, "close");
    keep();
    return bases;
}

const Bases &bases()
{
    static const Bases made = make_bases();
    return made;
}

class Damage
{
  public:
    explicit Damage(Input &input) : image_(bases().images[input.below(bases().images.size())])
    {
        while (!input.done())
            step(input);
    }
    const HeapImage &image() const { return image_; }
    bool contents_hold() const { return contents_hold_; }

  private:
    // A place in the file: near its start, or at the start of one of its parts.
    size_t place(Input &input, const std::string &bytes) const
    {
        static const size_t kPlaces[] = {0, PERSIST_HEADER_SPACING_BYTES, PERSIST_DATA_OFFSET,
                                         PERSIST_DATA_OFFSET + PERSIST_STATE_BYTES,
                                         PERSIST_LOG_START, PERSIST_MARK_OFFSET};
        const size_t kind = input.byte();
        const size_t off = input.number16();
        const size_t at = kind % 7 < 6 ? kPlaces[kind % 7] + (kind & 128 ? off : off % 512)
                                       : off * 512 % (bytes.size() + 1) + kind / 7;
        return bytes.empty() ? 0 : at % bytes.size();
    }

    void touch(size_t file, size_t at)
    {
        const bool is_data = file == 0 && at >= PERSIST_DATA_OFFSET;
        if (is_data || (touched_ != fuzz::kHeapFiles && touched_ != file))
            contents_hold_ = false;
        touched_ = file;
    }

    void write(Input &input, size_t file, size_t at, uint64_t value, size_t size)
    {
        (void)input;
        std::string &bytes = image_.bytes[file];
        touch(file, at + size - 1);
        for (size_t i = 0; i < size && at + i < bytes.size(); i++)
            bytes[at + i] = static_cast<char>(value >> 8 * i);
    }

    void sign_header(size_t slot)
    {
        std::string &bytes = image_.bytes[0];
        const size_t at = slot * PERSIST_HEADER_SPACING_BYTES;
        if (bytes.size() < at + PERSIST_HEADER_BYTES)
            return;
        const size_t summed = offsetof(persist_header, checksum);
        const uint64_t sum = checksum_of(bytes.data() + at, summed, PERSIST_MAGIC);
        memcpy(&bytes[at + summed], &sum, sizeof sum);
        contents_hold_ = false;
    }

    void sign_chunk(size_t file)
    {
        std::string &bytes = image_.bytes[file];
        const size_t start = file == 0 ? 0 : PERSIST_LOG_START;
        persist_header header;
        persist_chunk chunk;
        if (bytes.size() < start + sizeof chunk || image_.bytes[0].size() < sizeof header)
            return;
        memcpy(&header, image_.bytes[0].data(), sizeof header);
        memcpy(&chunk, bytes.data() + start, sizeof chunk);
        const size_t size = chunk_bytes(chunk.pages % 300, os_page_size());
        if (start + size > bytes.size())
            return;
        const uint64_t seed = log_seed(&header);
        memcpy(&bytes[start + offsetof(persist_chunk, before)], &seed, sizeof seed);
        chunk.checksum = checksum_of(bytes.data() + start + PERSIST_CHUNK_SUMMED_FROM,
                                     size - PERSIST_CHUNK_SUMMED_FROM, seed);
        memcpy(&bytes[start + offsetof(persist_chunk, checksum)], &chunk.checksum,
               sizeof chunk.checksum);
        contents_hold_ = false;
    }

    void resize(Input &input, size_t file)
    {
        std::string &bytes = image_.bytes[file];
        const size_t amount = input.size(17);
        if (input.flag())
            bytes.resize(bytes.size() - std::min(bytes.size(), amount));
        else
            bytes.append(amount, static_cast<char>(input.byte()));
        touch(file, bytes.size()); // a cut file may be grown again
    }

    // Copies a part of one file, of this state or another one, over a part of another.
    void mix(Input &input, size_t file)
    {
        const HeapImage &other = bases().images[input.below(bases().images.size())];
        const std::string &from = other.bytes[input.below(fuzz::kHeapFiles)];
        std::string &to = image_.bytes[file];
        const size_t at = place(input, to);
        const size_t start = place(input, from);
        const size_t size = std::min(input.size(13), std::min(to.size() - at, from.size() - start));
        if (size == 0)
            return;
        touch(file, at + size - 1);
        to.replace(at, size, from, start, size);
        contents_hold_ = false; // an older complete header or log is no damage
    }

    void step(Input &input)
    {
        static const uint64_t kValues[] = {
            0, 1, 2, UINT64_MAX, 1u << 16, 4096, INT64_MAX, INT64_MIN + 0ull, 1ull << 47, 131072};
        const size_t kind = input.below(10);
        const size_t file = input.below(fuzz::kHeapFiles);
        std::string &bytes = image_.bytes[file];
        const size_t at = place(input, bytes);
        switch (kind) {
        case 0:
        case 1:
            if (!bytes.empty())
                write(input, file, at, static_cast<unsigned char>(bytes[at]) ^ 1u << input.below(8),
                      1);
            break;
        case 2:
            write(input, file, at, input.byte(), 1);
            break;
        case 3:
            write(input, file, at / 8 * 8, kValues[input.below(10)], 8);
            break;
        case 4:
            write(input, file, at / 4 * 4, input.number16(), 4);
            break;
        case 5:
            resize(input, file);
            break;
        case 6:
            mix(input, file);
            break;
        case 7:
            sign_header(input.below(2));
            break;
        case 8:
            sign_chunk(1 + input.below(2));
            break;
        default:
            image_.there[file] = image_.there[file] && input.below(8) != 0;
            std::swap(image_.bytes[1], image_.bytes[input.flag() ? 2 : 1]);
            contents_hold_ = false;
        }
    }

    HeapImage image_;
    bool contents_hold_ = true;
    size_t touched_ = fuzz::kHeapFiles; // the file that was damaged; none yet
};

bool visit_root(const char *name, void *block, void *context)
{
    *static_cast<size_t *>(context) += strlen(name) + (block != nullptr);
    return true;
}

bool visit_block(void *block, size_t size, bool used, void *context)
{
    (void)block;
    *static_cast<size_t *>(context) += size + used;
    return true;
}

void check_contents(cairn_persist *heap)
{
    const uint64_t number = fuzz::last_commit(heap);
    require(number <= kCommits, "a commit that never was", nullptr, number);
    const auto *words = static_cast<const uint64_t *>(cairn_persist_get_root(heap, "words"));
    require((words != nullptr) == (number > 0), "the root", words, number);
    for (size_t i = 0; words != nullptr && i < kWords; i++)
        require(words[i] == number * (i + 1), "a word", &words[i], words[i]);
}

// Uses a heap in which the check found nothing.
void use(cairn_persist *heap)
{
    size_t seen = 0;
    cairn_persist_walk_roots(heap, visit_root, &seen);
    cairn_tlsf_walk(persist_tlsf_of(heap), visit_block, &seen);
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return;
    void *block = cairn_allocator_alloc(cairn_persist_allocator(heap), 5000, 64);
    if (block != nullptr) {
        memset(block, 1, 5000);
        (void)cairn_persist_set_root(heap, "new", block);
        (void)cairn_persist_remove_root(heap, "nothing");
        (void)cairn_persist_remove_root(heap, "new");
        cairn_allocator_free(cairn_persist_allocator(heap), block, 0);
    }
    require(cairn_persist_commit(heap) == 0, "commit");
    require(cairn_persist_check(heap) == nullptr, "check after use");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    static const unsigned kFlags[] = {0, CAIRN_PERSIST_READ_ONLY, CAIRN_PERSIST_CHECK,
                                      CAIRN_PERSIST_CREATE | CAIRN_PERSIST_WRITERS_PAUSE};
    (void)bases();
    const unsigned flags = kFlags[input.below(4)];
    const Damage damage(input);
    fuzz::write_image(damage.image());
    const char *why = nullptr;
    errno = 0;
    cairn_persist *heap = fuzz::open_heap(flags, &why);
    if (heap == nullptr) {
        require(why != nullptr && *why != '\0', "no sentence");
        const bool is_empty = errno == ENODATA && (flags & CAIRN_PERSIST_READ_ONLY) != 0;
        require(is_empty || errno == EBADMSG || errno == ENOTSUP || errno == ENOENT ||
                    errno == ENOMEM,
                "errno", nullptr, static_cast<size_t>(errno));
        return 0;
    }
    const char *fault = cairn_persist_check(heap);
    require(fault == nullptr || !(flags & CAIRN_PERSIST_CHECK), "opened with a fault");
    if (damage.contents_hold()) {
        require(fault == nullptr, fault ? fault : "");
        check_contents(heap);
    }
    if (fault == nullptr)
        use(heap);
    if (fault == nullptr)
        require(cairn_persist_close(heap) == 0, "close");
    else
        fuzz::abandon(heap);
    return 0;
}
