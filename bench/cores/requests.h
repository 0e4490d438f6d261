/* The requests of a program to the simulator: syscall(SIMULATOR, request, argument, argument).
 * Without the simulator the call fails with ENOSYS and changes nothing. */
#ifndef CAIRN_BENCH_CORES_REQUESTS_H
#define CAIRN_BENCH_CORES_REQUESTS_H

enum { SIMULATOR = 5000 };

enum simulator_request {
    SIMULATOR_START = 1, /* count from here */
    SIMULATOR_STOP,      /* end of the count; write the result. Arguments: mallocs, frees */
    SIMULATOR_END,       /* simulate no more */
    SIMULATOR_PLACE,     /* this thread runs on the core of the argument */
    SIMULATOR_CORE,      /* uint32_t *: the core of this thread */
    SIMULATOR_CLOCK,     /* uint64_t *: simulated nanoseconds */
    SIMULATOR_SLEEP,     /* as many nanoseconds as the argument pass */
};

#endif
