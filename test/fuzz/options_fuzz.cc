// Fuzzing of the parser of the options: the input is the text, applied to the defaults. A second
// parser is written in C++ from docs/reference/OPTIONS.md: both must produce equal options and an
// equal number of warnings, each of one line of bounded length.

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz/fuzz_input.h"

extern "C" {
#include "front/options.h"

// Sets the descriptor for the reports of sanitizers; absent without one.
void __sanitizer_set_report_fd(void *descriptor) __attribute__((weak));
}

namespace
{

using fuzz::require;

bool number_of(const std::string &text, uint64_t most, uint64_t *value)
{
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
        return false;
    unsigned __int128 sum = 0;
    for (char digit : text) {
        sum = sum * 10 + static_cast<unsigned>(digit - '0');
        if (sum > most)
            return false;
    }
    *value = static_cast<uint64_t>(sum);
    return true;
}

// Lower case, with _ for -, as the words of options are compared.
std::string folded(std::string text)
{
    for (char &letter : text)
        letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a')
                 : letter == '-'                ? '_'
                                                : letter;
    return text;
}

std::string trimmed(const std::string &text)
{
    const size_t first = text.find_first_not_of(' ');
    return first == std::string::npos ? ""
                                      : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool bytes_of(std::string text, size_t *value)
{
    text = folded(text);
    unsigned shift = 0;
    for (const char *end : {"", "i", "ib"})
        for (unsigned unit = 1; unit <= 3; unit++) {
            const std::string tail = std::string(1, " kmg"[unit]) + end;
            if (shift == 0 && text.size() >= tail.size() &&
                text.compare(text.size() - tail.size(), tail.size(), tail) == 0) {
                text.resize(text.size() - tail.size());
                shift = 10 * unit;
            }
        }
    uint64_t number = 0;
    if (!number_of(text, static_cast<uint64_t>(PTRDIFF_MAX) >> shift, &number))
        return false;
    *value = static_cast<size_t>(number) << shift;
    return true;
}

bool switch_of(const std::string &text, bool *value)
{
    const std::string word = folded(text);
    const bool on = word == "1" || word == "on" || word == "true" || word == "yes";
    const bool off = word == "0" || word == "off" || word == "false" || word == "no";
    if (on || off)
        *value = on;
    return on || off;
}

bool huge_pages_of(const std::string &text, enum huge_pages *value)
{
    bool on = false;
    if (folded(text) == "auto")
        *value = HUGE_PAGES_AUTO;
    else if (switch_of(text, &on))
        *value = on ? HUGE_PAGES_ON : HUGE_PAGES_OFF;
    else
        return false;
    return true;
}

bool limit_of(const std::string &text, size_t *bytes, bool *of_group)
{
    size_t number = 0;
    const bool group = folded(text) == "cgroup";
    if (!group && !bytes_of(text, &number))
        return false;
    *bytes = number;
    *of_group = group;
    return true;
}

// Applies an item.
// Returns: false when the item deserves a warning.
bool apply(const std::string &item, options *wanted)
{
    const size_t colon = item.find_first_of(":=");
    if (colon == std::string::npos)
        return false;
    const std::string key = folded(trimmed(item.substr(0, colon)));
    const std::string value = trimmed(item.substr(colon + 1));
    uint64_t decay = 0;
    if (key == "decay_ms") {
        const bool good = number_of(value, UINT32_MAX, &decay);
        wanted->pages.decay_ms = good ? decay : wanted->pages.decay_ms;
        return good;
    }
    if (key == "dirty_cap")
        return bytes_of(value, &wanted->pages.dirty_cap_bytes);
    if (key == "soft_limit")
        return limit_of(value, &wanted->pages.soft_limit_bytes, &wanted->soft_of_group);
    if (key == "hard_limit")
        return limit_of(value, &wanted->pages.hard_limit_bytes, &wanted->hard_of_group);
    if (key == "huge_pages")
        return huge_pages_of(value, &wanted->pages.huge_pages);
    if (key == "background")
        return switch_of(value, &wanted->background);
    return key == "verbose" && switch_of(value, &wanted->verbose);
}

size_t parse_again(const std::string &text, options *wanted)
{
    size_t warnings = 0;
    for (size_t at = 0; at <= text.size();) {
        const size_t comma = text.find(',', at);
        const std::string item = trimmed(text.substr(at, comma - at));
        warnings += !item.empty() && !apply(item, wanted);
        if (comma == std::string::npos)
            break;
        at = comma + 1;
    }
    return warnings;
}

// The text that the body writes to stderr.
template <typename Body> std::string standard_error_of(Body body)
{
    static const int file = memfd_create("stderr", MFD_CLOEXEC);
    static const int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
    require(file >= 0 && saved >= 0, "descriptors");
    if (__sanitizer_set_report_fd)
        __sanitizer_set_report_fd(reinterpret_cast<void *>(static_cast<intptr_t>(saved)));
    require(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0, "memfd");
    dup2(file, STDERR_FILENO);
    body();
    dup2(saved, STDERR_FILENO);
    std::string text(static_cast<size_t>(lseek(file, 0, SEEK_CUR)), '\0');
    require(pread(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "read");
    return text;
}

// Requires one line for each warning, with the parser's words and a bounded part of the text.
void check_warnings(const std::string &lines, size_t wanted)
{
    static const char kStart[] = "cairn: ";
    static const char kEnd[] = "\" in fuzz, ignored"; // the right form follows
    size_t ends = 0;
    for (size_t at = lines.find(kEnd); at != std::string::npos; at = lines.find(kEnd, at + 1))
        ends++;
    // The text may contain such an end itself.
    require(ends >= wanted && lines.size() <= wanted * 384, lines.c_str(), nullptr, ends);
    require(lines.compare(0, sizeof kStart - 1, kStart) == 0 || wanted == 0, lines.c_str());
    require(wanted != 0 || lines.empty(), lines.c_str());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    std::string text(reinterpret_cast<const char *>(data), size);
    text.resize(strlen(text.c_str())); // up to the first zero, like the value of a variable
    options parsed = {};
    parsed.pages.decay_ms = 1000;
    parsed.pages.dirty_cap_bytes = size_t{64} << 20;
    options wanted = parsed;

    const std::string lines =
        standard_error_of([&] { options_parse(&parsed, text.c_str(), "fuzz"); });
    check_warnings(lines, parse_again(text, &wanted));
    require(parsed.pages.decay_ms == wanted.pages.decay_ms, "decay_ms");
    require(parsed.pages.dirty_cap_bytes == wanted.pages.dirty_cap_bytes, "dirty_cap");
    require(parsed.pages.soft_limit_bytes == wanted.pages.soft_limit_bytes, "soft_limit");
    require(parsed.pages.hard_limit_bytes == wanted.pages.hard_limit_bytes, "hard_limit");
    require(parsed.soft_of_group == wanted.soft_of_group, "soft_limit:cgroup");
    require(parsed.hard_of_group == wanted.hard_of_group, "hard_limit:cgroup");
    require(parsed.pages.huge_pages == wanted.pages.huge_pages, "huge_pages");
    require(parsed.background == wanted.background, "background");
    require(parsed.verbose == wanted.verbose, "verbose");
    return 0;
}
