// A program for leaks_command_test.py: it has blocks of classes with virtual functions, lost and
// kept.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shop {
struct Order {
    virtual ~Order() = default;
    long number = 0;
    char filler[40] = {};
};
struct Parcel {
    virtual ~Parcel() = default;
    Order *order = nullptr;
};
} // namespace shop

static shop::Parcel *kept;
static shop::Order *volatile latest;

static __attribute__((noinline)) void lose_orders()
{
    for (int i = 0; i < 100; i++)
        latest = new shop::Order;
    latest = nullptr;
}

static __attribute__((noinline)) void lose_names()
{
    for (int i = 0; i < 50; i++) {
        char text[40];
        snprintf(text, sizeof text, "customer number %d", i);
        if (!strdup(text))
            abort();
    }
}

int main(int argc, char **argv)
{
    lose_orders();
    lose_names();
    kept = new shop::Parcel;
    kept->order = new shop::Order;
    char overwritten[4096];
    memset(overwritten, 0, sizeof overwritten);
    printf("%p %p\n", static_cast<void *>(kept), static_cast<void *>(kept->order));
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "stop") == 0)
        raise(SIGSTOP);
    return overwritten[0];
}
