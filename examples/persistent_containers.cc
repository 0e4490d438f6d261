// Containers that live on in a file: a list of visits and a count of words, kept from run to run.
//
//     persistent_containers visits.heap some words
//
// Without arguments it does what three runs would do, in a heap that it removes.
#include <cairn/persist.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace
{

// Correct at any address of the heap.
using visits = std::vector<cairn::persistent_string,
                           cairn::persistent_scoped_allocator<cairn::persistent_string>>;
// The nodes of std::map hold plain pointers, so the heap is opened where it was the last time.
using words = std::map<cairn::fixed_string, long, std::less<>,
                       cairn::fixed_scoped_allocator<std::pair<const cairn::fixed_string, long>>>;

struct totals {
    std::size_t visits;
    std::size_t words;
    long most;
};

totals visit(const char *path, const std::vector<std::string> &said)
{
    cairn_persist_options options = {};
    options.flags = CAIRN_PERSIST_CREATE | CAIRN_PERSIST_FIXED;
    cairn::persistent_heap heap(path, options);
    cairn::commit_guard guard(heap); // an exception on the way: nothing of this run was
    auto *all = heap.root<visits>("visits", heap.allocator<char>());
    auto *count = heap.root<words>("words", heap.fixed_allocator<char>());

    std::string text = "visit " + std::to_string(all->size() + 1) + ", with words:";
    long most = 0;
    for (const std::string &word : said) {
        cairn::fixed_string key(word.c_str(), heap.fixed_allocator<char>());
        most = std::max(most, ++(*count)[key]);
        text.append(" ").append(word);
    }
    all->emplace_back(text.c_str());
    std::printf("%s\n", all->back().c_str());

    const totals result = {all->size(), count->size(), most};
    const int error = guard.commit();
    if (error != 0)
        throw std::system_error(error, std::generic_category(), path);
    return result;
}

bool try_three_runs()
{
    const char *base = std::getenv("TMPDIR");
    std::string directory = std::string(base != nullptr ? base : "/tmp") + "/cairn_visits_XXXXXX";
    if (mkdtemp(directory.data()) == nullptr)
        return false;
    const std::string path = directory + "/visits.heap";
    visit(path.c_str(), {"one", "two", "three"});
    visit(path.c_str(), {"two", "three", "four"});
    const totals last = visit(path.c_str(), {"three", "a word that is too long for its object"});
    std::filesystem::remove_all(directory);
    return last.visits == 3 && last.words == 5 && last.most == 3;
}

} // namespace

int main(int count, char **arguments)
{
    try {
        if (count < 2)
            return try_three_runs() ? 0 : 1;
        const totals now = visit(arguments[1], {arguments + 2, arguments + count});
        std::printf("%zu visits, %zu words\n", now.visits, now.words);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
