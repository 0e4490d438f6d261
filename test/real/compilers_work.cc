// Work for compilers: instantiates much of the standard library. Run as a program, it prints one
// line that does not depend on the compiler.

#include <algorithm>
#include <any>
#include <array>
#include <charconv>
#include <chrono>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <forward_list>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <list>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <valarray>
#include <variant>
#include <vector>

namespace
{

std::uint64_t hash(std::uint64_t seed, std::string_view text)
{
    for (unsigned char c : text) {
        seed = (seed ^ c) * 0x100000001b3;
    }
    return seed;
}

// A chain of distinct types: every step instantiates containers of the step before.
template <int N> struct Step {
    std::map<int, std::vector<std::array<char, N + 1>>> rows;
    using Name = std::variant<int, std::string, std::array<short, N + 1>>;
    std::unordered_map<std::string, Name> names;
    Step<N - 1> rest;

    std::uint64_t fill(std::uint64_t seed)
    {
        for (int i = 0; i < 50; i++) {
            rows[i % (N + 3)].push_back({});
            rows[i % (N + 3)].back()[0] = static_cast<char>(i);
            names[std::to_string(i % 17)] = (i & 1) ? Name(i) : Name(std::to_string(N));
        }
        std::vector<std::string> keys;
        for (auto &[name, value] : names) {
            keys.push_back(name +
                           std::visit([](auto &v) { return std::to_string(sizeof v > 0); }, value));
        }
        std::sort(keys.begin(), keys.end(), std::greater<>{});
        for (auto &key : keys) {
            seed = hash(seed, key);
        }
        return rest.fill(seed + rows.size());
    }
};

template <> struct Step<0> {
    std::uint64_t fill(std::uint64_t seed) { return seed; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual std::string name() const = 0;
};

template <int N> struct Polygon : Shape {
    std::string name() const override
    {
        if (N == 13) {
            throw std::runtime_error("unlucky");
        }
        return "polygon" + std::to_string(N);
    }
};

template <int... N> std::vector<std::unique_ptr<Shape>> shapes(std::integer_sequence<int, N...>)
{
    std::vector<std::unique_ptr<Shape>> result;
    (result.push_back(std::make_unique<Polygon<N>>()), ...);
    return result;
}

std::uint64_t shapes_hash()
{
    std::uint64_t result = 0;
    for (auto &shape : shapes(std::make_integer_sequence<int, 60>{})) {
        try {
            result = hash(result, shape->name());
        } catch (const std::exception &error) {
            result = hash(result, error.what());
        }
    }
    return result;
}

std::uint64_t words_hash()
{
    std::ostringstream out;
    for (int i = 0; i < 2000; i++) {
        out << std::hex << i * 2654435761u << (i % 3 ? ' ' : '\n') << std::setw(7) << std::dec << i;
    }
    std::string text = out.str();
    std::multiset<std::string> found;
    std::istringstream in(text);
    for (std::string word; in >> word;) {
        found.insert(word + word.substr(word.size() / 2));
    }
    std::uint64_t result = 0;
    for (auto &entry : found) {
        result = hash(result, entry);
    }
    return result;
}

std::uint64_t threads_hash()
{
    std::vector<std::future<std::uint64_t>> parts;
    for (int i = 0; i < 4; i++) {
        parts.push_back(std::async(std::launch::async, [i] {
            std::mt19937_64 random(i);
            std::list<std::string> list;
            std::deque<std::shared_ptr<std::string>> queue;
            for (int j = 0; j < 20000; j++) {
                list.push_back(std::string(random() % 100, 'x'));
                queue.push_back(std::make_shared<std::string>(list.back()));
                if (queue.size() > 100) {
                    queue.pop_front();
                }
            }
            list.sort([](auto &a, auto &b) { return a.size() < b.size(); });
            return std::accumulate(list.begin(), list.end(), std::uint64_t{0},
                                   [](auto sum, auto &s) { return sum * 31 + s.size(); });
        }));
    }
    std::uint64_t result = 0;
    for (auto &part : parts) {
        result = result * 7 + part.get();
    }
    return result;
}

} // namespace

int main()
{
    Step<8> steps;
    std::printf("%016llx %016llx %016llx %016llx\n", (unsigned long long)steps.fill(1),
                (unsigned long long)shapes_hash(), (unsigned long long)words_hash(),
                (unsigned long long)threads_hash());
}
