/* The one thing that C cannot say: a new handler may throw, and operator new(nothrow) must then
 * return null.
 *
 * The C++ runtime's symbols are weak, so that a C program needs no C++ library; without one there
 * is no handler, and this is never called.
 */
__asm__(".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak __gxx_personality_v0\n");

extern "C" bool cairn_internal_call_handler(void (*handler)());

/* True when the handler returned, false when it threw. */
extern "C" __attribute__((visibility("hidden"))) bool cairn_internal_call_handler(void (*handler)())
{
    try {
        handler();
        return true;
    } catch (...) {
        return false;
    }
}
