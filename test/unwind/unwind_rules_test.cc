// The rules of .eh_frame, in tables that the test makes: the supported forms, and damage.

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

#include <random>
#include <vector>

extern "C" {
#include "os/memory.h"
#include "unwind/unwind_rules.h"
}

namespace unwind_rules_test
{

#if defined(__x86_64__)
constexpr uint8_t kFrame = 6, kStack = 7, kReturn = 16;
#else
constexpr uint8_t kFrame = 29, kStack = 31, kReturn = 30;
#endif
constexpr uint8_t kOther = 3; // a register that the unwinder does not follow

using Bytes = std::vector<uint8_t>;

void put4(Bytes &to, size_t at, int64_t value)
{
    const uint32_t word = static_cast<uint32_t>(value);
    memcpy(&to[at], &word, sizeof word);
}

Bytes operator+(Bytes left, const Bytes &right)
{
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

Bytes part(Bytes content) // with its length before it
{
    while (content.size() % 4 != 0)
        content.push_back(0);
    Bytes all(4);
    put4(all, 0, static_cast<int64_t>(content.size()));
    return all + content;
}

// An object with one function of `kLength` bytes at its start. The tables of the object end where
// its pages end.
class Tables
{
  public:
    static constexpr size_t kLength = 64;

    Tables(const Bytes &common, const Bytes &program, const Bytes &letters = {'z', 'R', 0})
    {
        Bytes cie =
            part(Bytes{0, 0, 0, 0, 1} + letters + Bytes{1, 0x78, kReturn, 1, 0x1b} + common);
        Bytes fde = part(Bytes(12) + Bytes{0} + program);
        Bytes head(12 + 8);
        head[0] = 1, head[1] = 0x1b, head[2] = 0x03, head[3] = 0x3b;
        put4(head, 8, 1);
        bytes_ = head + cie + fde;
        page_ = os_page_size();
        start_ = static_cast<char *>(
            mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_EQ(mprotect(start_ + 2 * page_, page_, PROT_NONE), 0);
        tables_ = start_ + 2 * page_ - bytes_.size();
        const int64_t fde_at = static_cast<int64_t>(head.size() + cie.size());
        const char *entry = tables_ + fde_at;
        put4(bytes_, 12, start_ - tables_);
        put4(bytes_, 16, fde_at);
        put4(bytes_, static_cast<size_t>(fde_at) + 4, static_cast<int64_t>(cie.size()) + 4);
        put4(bytes_, static_cast<size_t>(fde_at) + 8, start_ - (entry + 8));
        put4(bytes_, static_cast<size_t>(fde_at) + 12, kLength);
        show(bytes_);
    }
    ~Tables() { munmap(start_, 3 * page_); }
    Tables(const Tables &) = delete;
    Tables &operator=(const Tables &) = delete;

    void show(const Bytes &bytes) { memcpy(tables_, bytes.data(), bytes.size()); }
    const Bytes &bytes() const { return bytes_; }

    struct unwind_rule at(size_t offset) const
    {
        const uintptr_t start = reinterpret_cast<uintptr_t>(start_);
        const struct unwind_object object = {.start = start,
                                            .end = start + 2 * page_,
                                            .readable_from = start,
                                            .readable_to = start + 2 * page_,
                                            .tables = reinterpret_cast<uintptr_t>(tables_),
                                            .tag = 0};
        return unwind_rule_of(start + offset, &object);
    }

  private:
    Bytes bytes_;
    size_t page_;
    char *start_;
    char *tables_;
};

const Bytes kUsual = {0x0c, kStack, 8, uint8_t(0x80 | kReturn), 1}; // CFA = stack + 8, return at -8

void expect_rule(struct unwind_rule rule, stack_step step, int cfa, int return_address)
{
    EXPECT_EQ(rule.step, step);
    EXPECT_EQ(rule.cfa, cfa);
    EXPECT_EQ(rule.return_address, return_address);
}

TEST(StackRules, AdvanceByWhatWasPushed)
{
    const uint8_t saved = uint8_t(0x80 | kFrame);
    const Tables tables(kUsual, {0x41, 0x0e, 16, saved, 2, // from 1 on: pushed
                                 0x43, 0x0d, kFrame,       // from 4 on: the frame pointer
                                 0x02, 20, 0x0a, 0x0c, kStack, 8, uint8_t(0xc0 | kFrame), // 24
                                 0x41, 0x0b}); // 25: the former rule
    expect_rule(tables.at(1), UNWIND_BY_STACK, 1, -1);
    EXPECT_EQ(tables.at(1).frame_pointer_kind, FRAME_POINTER_KEPT);
    expect_rule(tables.at(2), UNWIND_BY_STACK, 2, -1);
    EXPECT_EQ(tables.at(2).frame_pointer_kind, FRAME_POINTER_BY_CFA);
    EXPECT_EQ(tables.at(2).frame_pointer, -2);
    expect_rule(tables.at(5), UNWIND_BY_FRAME, 2, -1);
    expect_rule(tables.at(24), UNWIND_BY_FRAME, 2, -1);
    expect_rule(tables.at(25), UNWIND_BY_STACK, 1, -1);
    EXPECT_EQ(tables.at(25).frame_pointer_kind, FRAME_POINTER_KEPT);
    expect_rule(tables.at(26), UNWIND_BY_FRAME, 2, -1);
}

TEST(StackRules, AnAlignedStack)
{
    const uint8_t by_frame = uint8_t(0x70 + kFrame);
    const Tables tables(kUsual, {0x0f, 3, by_frame, 0x78, 0x06,  // the CFA is stored at frame - 8
                                 0x10, kFrame, 2, by_frame, 0}); // and that of its caller at frame
    expect_rule(tables.at(8), UNWIND_BY_POINTER, -1, -1);
    EXPECT_EQ(tables.at(8).frame_pointer_kind, FRAME_POINTER_BY_FRAME);
    EXPECT_EQ(tables.at(8).frame_pointer, 0);
}

TEST(StackRules, EndsWhereThereIsNoReturn)
{
    EXPECT_EQ(Tables(kUsual, {0x07, kReturn}).at(8).step, UNWIND_END);
    const Tables tables(kUsual, {});
    EXPECT_EQ(tables.at(Tables::kLength).step, UNWIND_BY_STACK)
        << "a call may be the last instruction";
    EXPECT_EQ(tables.at(Tables::kLength + 1).step, UNWIND_END) << "code without a function";
}

TEST(StackRules, RegistersOfNoInterestChangeNothing)
{
    const Tables tables(kUsual, {uint8_t(0x80 | kOther),
                                 5,
                                 0x05,
                                 kOther,
                                 4,
                                 0x11,
                                 kOther,
                                 0x7e,
                                 0x08,
                                 kOther,
                                 0x09,
                                 kOther,
                                 4,
                                 0x14,
                                 kOther,
                                 3,
                                 0x16,
                                 kOther,
                                 1,
                                 0x30,
                                 0x06,
                                 kOther,
                                 0x2e,
                                 16});
    expect_rule(tables.at(8), UNWIND_BY_STACK, 1, -1);
}

TEST(StackRules, WhatIsNotKnownIsSaid)
{
    const Bytes unknown[] = {
        {0x0c, kOther, 16},          // CFA relative to another register
        {0x0f, 2, 0x77, 8},          // by a computation
        {0x0e, 12},                  // not a whole number of words
        {0x0e, 0x80, 0x80, 0x80, 1}, // the frame is too large
        {0x08, kReturn},             // the return address in a register
        {0x09, kReturn, kOther},     // in another register
        {0x14, kStack, 1},           // a rule for the stack pointer
        {0x10, kFrame, 2, 0x77, 0},  // the frame pointer by a computation
        {0x3f},                      // an instruction that does not exist
        {0x0b},                      // restores without a remembered state
        {0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a}, // remembers too many states
    };
    for (const Bytes &program : unknown)
        EXPECT_EQ(Tables(kUsual, program).at(8).step, UNWIND_UNKNOWN) << &program - unknown;
    EXPECT_EQ(Tables(kUsual, {}, {'z', 'R', 'S', 0}).at(8).step, UNWIND_UNKNOWN)
        << "the frame of a signal";
    EXPECT_EQ(Tables(kUsual, {}, {'e', 'h', 0}).at(8).step, UNWIND_UNKNOWN);
}

// The pages behind the tables are inaccessible, and the pages before the object do not belong to
// it.
TEST(StackRules, DamageIsNeverReadOutside)
{
    std::mt19937 random(7);
    Tables tables(kUsual, {0x41, 0x0e, 16, 0x0f, 3, 0x76, 0x78, 0x06, 0x02, 20, 0x0a, 0x0b});
    unsigned known = 0;
    for (int round = 0; round < 20000; round++) {
        Bytes damaged = tables.bytes();
        for (unsigned i = 0; i <= random() % 3; i++)
            damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
        tables.show(damaged);
        known += tables.at(1 + random() % Tables::kLength).step != UNWIND_UNKNOWN;
    }
    EXPECT_GT(known, 0u);
}

} // namespace unwind_rules_test
