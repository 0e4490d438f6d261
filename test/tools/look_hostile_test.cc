// Core files that were made to harm their reader: cairn-look ends with an answer or one sentence,
// in memory and time that the length of the file bounds.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tools/core_maker.h"

using namespace core_kit;

namespace
{

constexpr long kMemoryMostKb = 600 << 10; // with a sanitizer
constexpr unsigned kSecondsMost = 60;

struct Outcome {
    int status = -1; // of the process; 0x200: the tool ended with a sentence
    std::string output, error;
};

// The content of a file, which is removed.
std::string take_file(const std::string &path)
{
    std::ifstream file(path);
    std::string content = {std::istreambuf_iterator<char>(file), {}};
    (void)unlink(path.c_str());
    return content;
}

// Runs cairn-look on the file.
Outcome run(const std::string &path, const std::vector<std::string> &words)
{
    std::vector<char *> arguments = {const_cast<char *>(LOOK), const_cast<char *>(words[0].c_str()),
                                     const_cast<char *>(path.c_str())};
    for (size_t i = 1; i < words.size(); i++)
        arguments.push_back(const_cast<char *>(words[i].c_str()));
    arguments.push_back(nullptr);
    const std::string output_path = path + ".output", error_path = path + ".error";
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(kSecondsMost);
        (void)setenv("ASAN_OPTIONS", "detect_leaks=0", 1); // the tool's memory ends with it
        const int output = open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const int error = open(error_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(output, STDOUT_FILENO);
        (void)dup2(error, STDERR_FILENO);
        execv(LOOK, arguments.data());
        _exit(127);
    }
    Outcome outcome;
    struct rusage usage = {};
    EXPECT_EQ(wait4(child, &outcome.status, 0, &usage), child);
    EXPECT_LT(usage.ru_maxrss, kMemoryMostKb) << words[0];
    outcome.output = take_file(output_path);
    outcome.error = take_file(error_path);
    return outcome;
}

const std::vector<std::vector<std::string>> &commands()
{
    static const std::vector<std::vector<std::string>> all = {{"census"},
                                                              {"map"},
                                                              {"blocks"},
                                                              {"plan"},
                                                              {"profile"},
                                                              {"leaks"},
                                                              {"leaks", "every"},
                                                              {"address", "0x2000080"},
                                                              {"pointers", "0x2000080", "every"}};
    return all;
}

class Hostile : public testing::Test
{
  protected:
    // Runs every command. Each must end with status 0, or with 2 and a sentence with these words.
    void check(const std::string &bytes, const std::string &words)
    {
        const std::string path = testing::TempDir() + "core." + std::to_string(getpid());
        std::ofstream(path, std::ios::binary) << bytes;
        for (const std::vector<std::string> &command : commands()) {
            const Outcome outcome = run(path, command);
            refused_ += outcome.status == 0x200;
            EXPECT_TRUE(outcome.status == 0 || outcome.status == 0x200)
                << command[0] << ": " << outcome.status << " " << outcome.error;
            if (outcome.status == 0x200 && command[0] != "profile") {
                EXPECT_NE(outcome.error.find(words), std::string::npos) << outcome.error;
            }
        }
        (void)unlink(path.c_str());
    }
    void check(const std::string &words = "no Cairn library found")
    {
        check(maker_.bytes(), words);
    }

    CoreMaker maker_;
    int refused_ = 0; // commands; `profile` refuses a table that is not the library's
};

TEST_F(Hostile, TheCoreItselfIsSound)
{
    check();
    EXPECT_EQ(refused_, 1);
}

// A core that lacks the table of classes and a part of the page map: the capacity of a class is
// taken from the headers of its slabs.
TEST_F(Hostile, ACapacityThatNoSlabHas)
{
    maker_.heap.size_classes = pointer_to(0x77770000); // not in the file
    std::swap(maker_.segments[1], maker_.segments.back());
    for (uint64_t capacity : {63U, 255U, 256U, 600U, 5000U, 1U << 20, UINT32_MAX}) {
        for (unsigned i = 0; i < 2; i++) {
            maker_.put_value(CoreMaker::header(i) + 52, static_cast<uint32_t>(capacity));
            maker_.put_word(CoreMaker::header(i) + 16, 1); // the limit of slots: none was used
        }
        std::string bytes = maker_.bytes();
        bytes.resize(bytes.size() - kLeafBytes / 2);
        check(bytes, "");
    }
}

// The table of classes ends with the memory that the core has, behind its first class.
TEST_F(Hostile, ATableOfClassesThatIsCut)
{
    const uint64_t end = 0x70000000;
    std::string last(kPage, '\0');
    for (uint32_t word : {64, 1, 63, 0})
        last.append(reinterpret_cast<const char *>(&word), sizeof word);
    last.erase(0, 16);
    maker_.segments.push_back({end - kPage, last});
    maker_.segments.push_back({end + (kPage << 10), std::string(kPage, '\0')}); // is cut
    maker_.heap.size_classes = pointer_to(end - 16);
    for (bool is_moved : {false, true}) {
        if (is_moved) // as if its slots had no bytes
            maker_.put_word(CoreMaker::header(0) + 8, kData);
        std::string bytes = maker_.bytes();
        bytes.resize(bytes.size() - 1);
        check(bytes, "");
    }
}

TEST_F(Hostile, AClassThatDoesNotFitItsSlab)
{
    maker_.put_class(0, 1 << 20, 1, 255);
    check();
    EXPECT_GT(refused_, 1);
}

TEST_F(Hostile, PackedBlocksOfNoBytes)
{
    maker_.heap.packed_bytes = 0;
    check();
    EXPECT_GT(refused_, 1);
}

TEST_F(Hostile, PackedSlabsOfAnotherClassThanTheLibraryHas)
{
    maker_.heap.packed_class = UINT32_MAX;
    maker_.heap.packed_bytes = 0;
    maker_.page.tag_slab = 0;
    maker_.page.span_tag = at(48, 4);
    maker_.put_value(CoreMaker::header(0) + 48, UINT32_MAX);
    check();
}

TEST_F(Hostile, PackedSlabsLongerThanTheirPages)
{
    maker_.heap.packed_words = 512;
    maker_.heap.packed_bytes = 1 << 20;
    check();
    EXPECT_GT(refused_, 1);
}

TEST_F(Hostile, AddressesOfMoreThan64Bits)
{
    maker_.page.address_bits = 200;
    check();
    EXPECT_GT(refused_, 1);
}

TEST_F(Hostile, NotesThatNameTheSameBytes)
{
    maker_.note_segments[0].resize(4 << 20);
    maker_.copies_of_notes = 400;
    check("two of its program headers name the same bytes");
    EXPECT_EQ(refused_, 9);
}

TEST_F(Hostile, RootsThatNameOneLeaf)
{
    for (uint64_t region = 0; region < kRegions; region++)
        maker_.map(region, kLeafDistance);
    for (uint64_t entry = 0; entry < kRegions; entry++)
        maker_.put_word(kMap + kLeafDistance + 8 * entry, kHeaders - kMap - kLeafDistance);
    maker_.segments[3].bytes.resize(8 << 20);
    check("describes more than a file of its length can hold");
    EXPECT_EQ(refused_, 8);
}

TEST_F(Hostile, ABlockThatIsAbsent)
{
    maker_.put_pages(3, kData + 2 * kPage, kTagLarge, (uint64_t{1} << 26) - kRegions - 2);
    check();
    EXPECT_EQ(refused_, 1);
    maker_.put_pages(3, kData + 2 * kPage, kTagLarge, (uint64_t{1} << 52) - 1);
    check();
}

TEST_F(Hostile, HeapsInACircle)
{
    maker_.put_word(kHeap, kState + 256);
    maker_.put_word(kState + 256, kHeap);
    maker_.heap.kept_pages = UINT32_MAX;
    maker_.put_word(kHeap + 16, CoreMaker::header(5));
    maker_.put_pages(5, kData + 7 * kPage, kTagKept, 0);
    maker_.put_word(CoreMaker::header(5) + 56, CoreMaker::header(5)); // the next one is itself
    check("describes more than a file of its length can hold");
}

TEST_F(Hostile, HeapsWithoutNumber)
{
    // Each word is a heap that leads to the next one.
    const size_t words = 1 << 20;
    std::string bytes(8 * words, '\0');
    for (size_t i = 0; i + 1 < words; i++)
        put(bytes, 8 * i, uint64_t{0x40000000} + 8 * (i + 1));
    maker_.segments.push_back({0x40000000, bytes});
    maker_.put_word(kHeap, 0x40000000);
    check("describes more than a file of its length can hold");
}

TEST_F(Hostile, GuardedBlocksThatNameTheSameMemory)
{
    maker_.guarded.slot_count = 1 << 16;
    maker_.guarded.slot_bytes = 0;
    maker_.put_word(kPoolSlots + 8, kData);
    maker_.put_word(kPoolSlots + 24, uint64_t{1} << 37);
    maker_.segments[3].bytes.resize(8 << 20);
    check();
    EXPECT_EQ(refused_, 1);
}

// The kernel leaves out a mapping that was never written: its entries are 0.
TEST_F(Hostile, ALeafThatWasNeverWritten)
{
    const uint64_t leaf = 0x60000000;
    maker_.map(2, leaf - kMap);
    const std::string path = testing::TempDir() + "core." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << maker_.bytes();
    const Outcome lacks = run(path, {"blocks"});
    EXPECT_NE(lacks.error.find("could not be read"), std::string::npos) << lacks.error;
    maker_.segments.push_back({leaf, "", kLeafBytes});
    std::ofstream(path, std::ios::binary) << maker_.bytes();
    const Outcome outcome = run(path, {"blocks"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.error, "");
    (void)unlink(path.c_str());
}

TEST_F(Hostile, ACoreWithoutAnySpan)
{
    maker_.map(1, 0);
    check();
}

// A file whose name has a newline and a tab: a line of the answer stays a line.
TEST_F(Hostile, ANameWithControlCharacters)
{
    std::string bytes = maker_.bytes();
    const std::string name = "/nowhere/libcairn.so";
    bytes.replace(bytes.find(name), name.size(), "/now\nere\tlibcairn.so");
    const std::string path = testing::TempDir() + "core." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << bytes;
    char address[32];
    (void)snprintf(address, sizeof address, "%#llx", static_cast<unsigned long long>(kLibrary));
    const Outcome outcome = run(path, {"address", address});
    (void)unlink(path.c_str());
    EXPECT_NE(outcome.output.find("\tname=/now?ere?libcairn.so\n"), std::string::npos)
        << outcome.output << outcome.error;
}

// Each mapping begins with the same program, which has 64 segments that name the same notes.
TEST_F(Hostile, MappingsThatNameOneProgram)
{
    const uint64_t kProgram = 0x50000000, kNotes = 60 << 10, kCount = 200000;
    Elf64_Ehdr header = {};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 64;
    std::string program(kPage + kNotes, '\0');
    put(program, 0, header);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr entry = {};
        entry.p_type = PT_NOTE;
        entry.p_offset = kPage;
        entry.p_filesz = kNotes;
        put(program, sizeof header + i * sizeof entry, entry);
    }
    maker_.segments.push_back({kProgram, program});
    std::string contents;
    put(contents, 0, kCount);
    put(contents, 8, uint64_t{kPage});
    for (uint64_t i = 0; i < kCount; i++) {
        const uint64_t range[] = {kProgram, kProgram + kPage, 0};
        put(contents, contents.size(), range);
    }
    for (uint64_t i = 0; i < kCount; i++)
        contents += std::string("/a") + '\0';
    const Elf64_Nhdr note = {5, static_cast<uint32_t>(contents.size()), NT_FILE};
    std::string bytes;
    put(bytes, 0, note);
    maker_.note_segments = {bytes + std::string("CORE\0\0\0\0", 8) + contents};
    check();
    EXPECT_EQ(refused_, 1);
}

// Words of a sound core's start may have any value; test/fuzz/core_fuzz.cc tries more of them.
TEST_F(Hostile, AnyWord)
{
    const std::string sound = maker_.bytes();
    const std::string path = testing::TempDir() + "core." + std::to_string(getpid());
    const uint64_t values[] = {0, 1, 0x7fff, UINT32_MAX, UINT64_MAX, uint64_t{1} << 40};
    const size_t map = sound.find(LAYOUT_MAGIC) + kPage; // the file's first part ends there
    for (size_t place = 0, turn = 0; place + 8 < map; place += size_t{8} * 7, turn++) {
        std::string bytes = sound;
        put(bytes, place, values[turn % std::size(values)]);
        std::ofstream(path, std::ios::binary) << bytes;
        const std::vector<std::string> &command = commands()[turn % commands().size()];
        const Outcome outcome = run(path, command);
        EXPECT_TRUE(outcome.status == 0 || outcome.status == 0x200)
            << command[0] << " at " << place << ": " << outcome.status << " " << outcome.error;
    }
    (void)unlink(path.c_str());
}

} // namespace
