// cairn.hpp and persist.hpp in a program without exceptions and RTTI: an error that the program can
// check is an owner of nothing, any other error ends the program with one line. The file is
// compiled in this way and run as a test.

#include <cairn/cairn.hpp>
#include <cairn/persist.hpp>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

namespace
{

int failures;

void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "not so: %s\n", what);
    failures++;
}

struct Noting {
    std::string *text;
    ~Noting() { text->push_back('x'); }
};

void use_what_there_is()
{
    std::string text;
    {
        cairn::scope scope;
        expect(static_cast<bool>(scope), "a scope");
        std::vector<int, cairn::allocator<int>> numbers(1000, 7, scope.allocator());
        scope.make<Noting>(Noting{&text});
        text.clear(); // the text of the temporary
    }
    expect(text == "x", "an object of a scope is destroyed with it");
    cairn::stack_ptr stack = cairn::make_stack();
    {
        cairn::stack_frame frame(stack.get());
        cairn::resource memory(frame.allocator());
        cairn::resource same(frame.allocator());
        expect(memory == same, "resources over one allocator are equal");
        expect(!(memory == *std::pmr::new_delete_resource()), "others are not");
        std::pmr::map<int, std::pmr::string> map(&memory);
        for (int i = 0; i < 100; i++)
            map[i] = "a string that is too long to lie in its object";
    }
    cairn::ring_ptr ring = cairn::make_ring();
    {
        cairn::ring_frame undone(ring.get());
        expect(undone.make<int>(3) != nullptr, "an object in a ring's frame");
    }
    {
        cairn::ring_frame frame(ring.get());
        cairn::ring_hold hold = frame.seal();
        expect(static_cast<bool>(hold), "a hold");
    }
    expect(cairn_ring_delete(ring.release()) == 0, "nothing of the ring is out");
    cairn::page_run pages(100000);
    expect(static_cast<bool>(pages), "pages");
    cairn::tlsf_shared_ptr heap = cairn::make_shared_tlsf();
    expect(heap != nullptr, "a shared heap");
    cairn::typed_pool<Noting> pool;
    auto object = pool.make_unique(Noting{&text});
    expect(object != nullptr, "an object of a pool");
}

// Refusals that the program can check.
void be_refused()
{
    cairn_stack_options impossible = {};
    impossible.fixed = true; // requires a buffer, which is missing
    expect(cairn::make_stack(impossible) == nullptr, "no stack");
    expect(cairn::make_pool(0) == nullptr, "no pool");
    expect(!cairn::page_run(SIZE_MAX), "no pages");
    cairn_pool_options one = {};
    one.max_objects = 1;
    cairn::typed_pool<long> pool(one);
    long *object = pool.make(1);
    expect(object != nullptr && pool.make(2) == nullptr, "no second object");
    expect(pool.make_unique(2) == nullptr, "nor a pointer to one");
    pool.destroy(object);

    char memory[128];
    cairn_stack_options options = {};
    options.buffer = memory;
    options.buffer_bytes = sizeof memory;
    options.fixed = true;
    cairn::stack_ptr stack = cairn::make_stack(options);
    struct Large {
        char bytes[1000];
    };
    cairn::stack_frame frame(stack.get());
    expect(frame.make<Large>() == nullptr, "no large object");
    std::vector<cairn_mark> marks;
    while (marks.empty() || marks.back().frame != nullptr)
        marks.push_back(cairn_stack_push(stack.get()));
    expect(!cairn::stack_frame(stack.get()), "no frame");
    for (; !marks.empty(); marks.pop_back())
        cairn_stack_pop(stack.get(), marks.back());
}

void use_a_persistent_heap()
{
    using vector = std::vector<int, cairn::persistent_allocator<int>>;
    char directory[] = "/tmp/cairn_no_exceptions_XXXXXX";
    expect(mkdtemp(directory) != nullptr, "a directory");
    const std::string path = std::string(directory) + "/heap";
    cairn_persist_options options = {};
    cairn::persistent_heap none(path.c_str(), options);
    expect(!none && errno == ENOENT, "no heap, and errno says why");
    options.flags = CAIRN_PERSIST_CREATE | CAIRN_PERSIST_FIXED;
    options.capacity_bytes = 1 << 20;
    {
        cairn::persistent_heap heap(path.c_str(), options);
        expect(static_cast<bool>(heap), "a heap");
        cairn::commit_guard guard(heap);
        heap.root<vector>("numbers", heap.allocator<int>())->assign(1000, 7);
        struct large {
            char bytes[2 << 20];
        };
        expect(heap.root<large>("large") == nullptr, "no root beyond the capacity");
        expect(heap.resource() != nullptr, "a resource");
        expect(guard.commit() == 0, "a commit");
    }
    {
        cairn::persistent_heap heap(path.c_str(), options);
        auto *numbers = heap.find<vector>("numbers");
        expect(numbers != nullptr && numbers->size() == 1000 && numbers->back() == 7, "are there");
    }
    expect(unlink(path.c_str()) == 0 && rmdir(directory) == 0, "nothing else was left");
}

// A refusal that a container cannot pass on.
void end_by_a_container()
{
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        cairn_stack_options options = {};
        options.max_bytes = 4096;
        cairn::stack_ptr stack = cairn::make_stack(options);
        std::vector<int, cairn::allocator<int>> numbers(cairn_stack_allocator(stack.get()));
        numbers.resize(1000000);
        _exit(0);
    }
    close(pipe_ends[1]);
    char text[200] = "";
    ssize_t got = read(pipe_ends[0], text, sizeof text - 1);
    int status = 0;
    waitpid(child, &status, 0);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "ends by SIGABRT");
    expect(got > 0 &&
               std::strcmp(text, "cairn: out of memory in a program without exceptions\n") == 0,
           text);
}

} // namespace

int main()
{
    use_what_there_is();
    be_refused();
    use_a_persistent_heap();
    end_by_a_container();
    return failures != 0;
}
