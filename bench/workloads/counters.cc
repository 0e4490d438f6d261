#include "counters.h"

#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench
{

Counters::Counters()
{
    static const uint64_t kConfigurations[kEvents] = {
        PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
        PERF_COUNT_HW_BRANCH_MISSES};
    for (int event = 0; event < kEvents; event++) {
        perf_event_attr attributes;
        memset(&attributes, 0, sizeof attributes);
        attributes.type = PERF_TYPE_HARDWARE;
        attributes.size = sizeof attributes;
        attributes.config = kConfigurations[event];
        attributes.disabled = 1;
        attributes.exclude_kernel = 1;
        attributes.exclude_hv = 1;
        attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        fds_[event] = static_cast<int>(
            syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    }
}

Counters::~Counters()
{
    for (int fd : fds_) {
        if (fd >= 0) {
            close(fd);
        }
    }
}

void Counters::start()
{
    for (int fd : fds_) {
        if (fd >= 0) {
            ioctl(fd, PERF_EVENT_IOC_RESET, 0);
            ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
        }
    }
}

void Counters::stop()
{
    for (int fd : fds_) {
        if (fd >= 0) {
            ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
        }
    }
}

bool Counters::read(Event event, double *value) const
{
    struct {
        uint64_t count, enabled_ns, running_ns;
    } data;
    if (fds_[event] < 0 || ::read(fds_[event], &data, sizeof data) != sizeof data ||
        data.running_ns == 0) {
        return false;
    }
    *value = static_cast<double>(data.count) * static_cast<double>(data.enabled_ns) /
             static_cast<double>(data.running_ns);
    return true;
}

void Counters::report(Run &run, double operations) const
{
    double instructions, cycles, branches, misses;
    const bool has_instructions = read(kInstructions, &instructions);
    const bool has_cycles = read(kCycles, &cycles);
    const bool has_branches = read(kBranches, &branches) && read(kBranchMisses, &misses);
    const auto give = [&run](bool available, const char *name, auto value, const char *unit) {
        if (available) {
            run.figure(name, value(), unit);
        } else {
            run.not_available(name, unit);
        }
    };
    give(
        has_instructions, "instructions", [&] { return instructions / operations; }, "");
    give(
        has_cycles, "cycles", [&] { return cycles / operations; }, "");
    give(
        has_instructions && has_cycles, "instructions_per_cycle",
        [&] { return instructions / cycles; }, "");
    give(
        has_branches, "branch_misses", [&] { return 100 * misses / branches; }, "%");
}

} // namespace bench
