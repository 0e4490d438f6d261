/* Calls that catch exceptions, which C cannot express: a new handler, or an operator new of the
 * program, may throw, and operator new(nothrow) must then return null. cxx.c calls these
 * functions.
 *
 * The symbols of the C++ runtime are weak, so that a C program needs no C++ library. Without that
 * library there is no handler, and these functions are never called. */
__asm__(".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak __gxx_personality_v0\n");

using size_t = decltype(sizeof 0); /* musl's compiler may have no C++ headers */

extern "C" {
bool cairn_internal_call_handler(void (*handler)());
void *cairn_internal_call_new(void *(*make)(size_t), size_t size);
void *cairn_internal_call_new_aligned(void *(*make)(size_t, size_t), size_t size, size_t alignment);
}

#define hidden __attribute__((visibility("hidden")))

/* Calls a new handler.
 *
 * Returns: true if it returned, false if it threw. */
extern "C" hidden bool cairn_internal_call_handler(void (*handler)())
{
    try {
        handler();
        return true;
    } catch (...) {
        return false;
    }
}

/* Calls an operator new of the program.
 *
 * Returns: NULL if it threw. */
extern "C" hidden void *cairn_internal_call_new(void *(*make)(size_t), size_t size)
{
    try {
        return make(size);
    } catch (...) {
        return nullptr;
    }
}

/* Calls an aligned operator new of the program.
 *
 * Returns: NULL if it threw. */
extern "C" hidden void *cairn_internal_call_new_aligned(void *(*make)(size_t, size_t), size_t size,
                                                        size_t alignment)
{
    try {
        return make(size, alignment);
    } catch (...) {
        return nullptr;
    }
}
