// cairn-containers: a typical C++ program, whose work is done by the standard containers: an index
// of a synthetic text, a graph, an event queue and shared state. Each phase keeps a part of its
// results alive in the next ones. The output depends on the argument only.
//
// cairn-containers [SIZE]   SIZE 1 to 1000, about 10 ms each; default 60
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{

using Engine = std::mt19937_64; // the standard fixes its sequence, but not that of distributions

std::string make_word(Engine &engine)
{
    static const char *const kSyllables[] = {"ka", "ri", "to", "men", "sol", "va",  "li",
                                             "du", "ne", "or", "ast", "qui", "bel", "ho"};
    std::string word;
    for (uint64_t left = 1 + engine() % 4; left != 0; left--) {
        word += kSyllables[engine() % (sizeof kSyllables / sizeof kSyllables[0])];
    }
    return word;
}

std::string make_line(Engine &engine)
{
    std::ostringstream line;
    for (uint64_t left = 5 + engine() % 10; left != 0; left--) {
        line << make_word(engine) << ' ';
    }
    return line.str();
}

// Builds an index from words to lines, by splitting, copying and sorting.
uint64_t index_text(Engine &engine, size_t lines)
{
    std::vector<std::string> text;
    for (size_t i = 0; i < lines; i++) {
        text.push_back(make_line(engine));
    }
    std::unordered_map<std::string, std::vector<uint32_t>> index;
    for (size_t number = 0; number < text.size(); number++) {
        std::istringstream words(text[number]);
        for (std::string word; words >> word;) {
            index[word].push_back(static_cast<uint32_t>(number));
        }
    }
    std::map<std::string, std::set<uint32_t>> sorted;
    for (const auto &[word, where] : index) {
        sorted[word + "."].insert(where.begin(), where.end());
    }
    uint64_t sum = 0;
    for (const auto &[word, where] : sorted) {
        sum = sum * 31 + word.size() * where.size();
    }
    return sum;
}

struct Vertex {
    std::vector<std::shared_ptr<Vertex>> next;
    std::unique_ptr<std::string> label;
    bool seen = false;
};

// Makes a random graph without cycles, walks it breadth first, then drops it.
uint64_t walk_graph(Engine &engine, size_t vertices)
{
    std::vector<std::shared_ptr<Vertex>> all;
    for (size_t i = 0; i < vertices; i++) {
        auto vertex = std::make_shared<Vertex>();
        vertex->label = std::make_unique<std::string>(make_word(engine) + make_word(engine));
        for (uint64_t edges = i == 0 ? 0 : engine() % 5; edges != 0; edges--) {
            // Only near vertices: a chain of last owners is destroyed recursively, as deep as it is
            // long.
            const size_t reach = i < 1000 ? i : 1000;
            vertex->next.push_back(all[i - 1 - engine() % reach]);
        }
        all.push_back(std::move(vertex));
    }
    uint64_t sum = 0;
    std::deque<std::shared_ptr<Vertex>> pending = {all.back()};
    while (!pending.empty()) {
        const std::shared_ptr<Vertex> vertex = pending.front();
        pending.pop_front();
        if (!vertex->seen) {
            vertex->seen = true;
            sum += vertex->label->size();
            pending.insert(pending.end(), vertex->next.begin(), vertex->next.end());
        }
    }
    while (!all.empty()) { // from the end, so that no vertex is the last owner of a long chain
        all.pop_back();
    }
    return sum;
}

struct Event {
    uint64_t at;
    std::function<void()> action;
    bool operator<(const Event &other) const { return at > other.at; }
};

// Runs events whose actions own lists and strings and post further events.
uint64_t run_events(Engine &engine, size_t events)
{
    std::priority_queue<Event> queue;
    std::list<std::string> journal;
    uint64_t done = 0, now = 0;
    const auto post = [&](uint64_t at) {
        std::list<uint64_t> numbers;
        for (uint64_t left = engine() % 8; left != 0; left--) {
            numbers.push_back(engine() % 1000);
        }
        auto name = std::make_shared<std::string>("event " + make_word(engine));
        queue.push({at, [&journal, &done, numbers, name] {
                        for (uint64_t number : numbers) {
                            done += number;
                        }
                        journal.push_back(*name + " with " + std::to_string(numbers.size()));
                        if (journal.size() > 5000) {
                            journal.pop_front();
                        }
                    }});
    };
    for (size_t i = 0; i < 1000; i++) {
        post(engine() % 1000);
    }
    for (size_t i = 0; i < events; i++) {
        const Event event = queue.top();
        queue.pop();
        now = event.at;
        event.action();
        post(now + engine() % 1000);
    }
    return done + now + journal.size();
}

} // namespace

int main(int argc, char **argv)
{
    char *end = nullptr;
    const unsigned long size = argc > 1 ? strtoul(argv[1], &end, 10) : 60;
    if (argc > 2 || size < 1 || size > 1000 || (end != nullptr && *end != '\0')) {
        fprintf(stderr, "usage: cairn-containers [SIZE]   SIZE 1 to 1000\n");
        return 2;
    }
    Engine engine(20240607);
    uint64_t sum = 0;
    for (unsigned long part = 0; part < size; part += 20) {
        const size_t left = size - part < 20 ? size - part : 20;
        sum = sum * 31 + index_text(engine, 150 * left);
        sum = sum * 31 + walk_graph(engine, 3000 * left);
        sum = sum * 31 + run_events(engine, 2500 * left);
    }
    printf("%016llx\n", static_cast<unsigned long long>(sum));
}
