/* Static probes for tracers (USDT): places in the code that bpftrace, perf, SystemTap and gdb find
 * by name, with arguments. A probe is one nop and a note in the file, which has the place of the
 * nop and the registers of the arguments. The probe costs only the nop until a tracer puts a trap
 * there.
 *
 * Source: SystemTap's wiki, "UserSpaceProbeImplementation", version 3 of the note; its header
 * <sys/sdt.h> is not needed to build.
 */
#ifndef CAIRN_BASE_USER_PROBE_H
#define CAIRN_BASE_USER_PROBE_H

#include "base/compiler.h"

/* The nop and its note, of owner "stapsdt" and kind 3. The note has the place of the probe, the
 * place of .stapsdt.base (by which tools detect that prelink has moved a file), no semaphore,
 * and then provider, name and arguments. */
#define user_probe_text(provider, name, arguments)                                                 \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt, \"\", \"note\"\n"                                                 \
    ".balign 4\n"                                                                                  \
    ".4byte 992f - 991f, 994f - 993f, 3\n"                                                         \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte 0\n"                                                                                   \
    ".asciz \"" provider "\"\n"                                                                    \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" arguments "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"                                                                                \
    ".ifndef _.stapsdt.base\n"                                                                     \
    ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"                    \
    ".weak _.stapsdt.base\n"                                                                       \
    ".hidden _.stapsdt.base\n"                                                                     \
    "_.stapsdt.base: .space 1\n"                                                                   \
    ".size _.stapsdt.base, 1\n"                                                                    \
    ".popsection\n"                                                                                \
    ".endif\n"

/* A probe with one unsigned argument of 8 bytes. */
#define user_probe_1(provider, name, a)                                                            \
    __asm__ volatile(user_probe_text(provider, name, "8@%0") : : "r"((uint64_t)(a)))

/* A probe with three unsigned arguments of 8 bytes. */
#define user_probe_3(provider, name, a, b, c)                                                      \
    __asm__ volatile(user_probe_text(provider, name, "8@%0 8@%1 8@%2")                             \
                     :                                                                             \
                     : "r"((uint64_t)(a)), "r"((uint64_t)(b)), "r"((uint64_t)(c)))

#endif
