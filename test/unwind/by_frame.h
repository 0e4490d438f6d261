// Helper for tests that build a stack by hand.
#pragma once

// The unwind rule of a function that finds its caller by its frame pointer.
#if defined(__x86_64__)
#define FRAME_RULE ".cfi_def_cfa %rbp, 16\n.cfi_offset %rbp, -16\n"
#else
#define FRAME_RULE ".cfi_def_cfa x29, 16\n.cfi_offset x29, -16\n.cfi_offset x30, -8\n"
#endif
__asm__(".text\n"
        ".type by_frame, @function\n"
        "by_frame: .cfi_startproc\n" FRAME_RULE "nop\n"
        "nop\n"
        ".cfi_endproc\n"
        ".size by_frame, . - by_frame\n");
extern "C" void by_frame() __asm__("by_frame");
