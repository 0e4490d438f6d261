//! The inline halves of `cairn/stack.h` in Rust: they move the position of a stack's head. They are
//! plain arithmetic on the head, so Miri can run them. Each function refuses (null, `None` or
//! `false`) when the slow half has to do the work. Heads with position and limit 0 always need the
//! slow halves.

use cairn_sys::{self as sys, cairn_mark, cairn_stack, cairn_stack_frame};
use core::ptr;

/// Allocates a block. Returns null when the slow half is needed.
///
/// # Safety
/// The head belongs to a stack of this thread; `align` is a power of two, `size` at most
/// `isize::MAX`.
#[inline]
pub unsafe fn alloc(head: *mut cairn_stack, size: usize, align: usize) -> *mut u8 {
    if align > sys::CAIRN_STACK_INLINE_ALIGN {
        return ptr::null_mut();
    }
    // SAFETY: the head is valid, and only this thread uses it.
    let (position, limit) = unsafe { ((*head).position, (*head).limit) };
    let start = if align > 8 { (position + align - 1) & !(align - 1) } else { position };
    let rounded = (size + 7) & !7;
    // The limit is only a multiple of the granule. With a larger alignment, the aligned start may
    // therefore be behind the limit.
    if (align > sys::CAIRN_STACK_LIMIT_GRANULE && start > limit)
        || rounded.wrapping_sub(1) >= limit.wrapping_sub(start)
    {
        return ptr::null_mut();
    }
    // SAFETY: the head is valid, and only this thread uses it.
    unsafe { (*head).position = start + rounded };
    ptr::with_exposed_provenance_mut(start)
}

/// Opens a frame. Returns `None` when the slow half is needed.
///
/// # Safety
/// The head belongs to a stack of this thread.
#[inline]
pub unsafe fn push(head: *mut cairn_stack) -> Option<cairn_mark> {
    // SAFETY: the head is valid, and the memory from position to limit is unused.
    unsafe {
        let start = (*head).position;
        let serial = (*head).serial + 1;
        let room = (*head).limit - start;
        if size_of::<cairn_stack_frame>() > room || serial % sys::CAIRN_STACK_PUSH_TICK as u64 == 0
        {
            return None;
        }
        let frame: *mut cairn_stack_frame = ptr::with_exposed_provenance_mut(start);
        frame.write(cairn_stack_frame { previous: (*head).frame, serial });
        (*head).frame = frame;
        (*head).serial = serial;
        (*head).position = start + size_of::<cairn_stack_frame>();
        Some(cairn_mark { frame, serial })
    }
}

/// Ends the newest frame if it is the frame of the mark. Returns whether it was.
///
/// # Safety
/// The head belongs to a stack of this thread. The mark's frame is one of its frames and has not
/// ended.
#[inline]
pub unsafe fn pop(head: *mut cairn_stack, mark: cairn_mark) -> bool {
    // SAFETY: the frame has not ended, so its header is valid.
    unsafe {
        if mark.frame != (*head).frame || (*mark.frame).serial != mark.serial {
            return false;
        }
        (*head).position = mark.frame.expose_provenance();
        (*head).frame = (*mark.frame).previous;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;

    #[repr(align(4096))]
    struct Memory([MaybeUninit<u8>; 8192]);

    fn head(memory: &mut Memory, bytes: usize) -> cairn_stack {
        let start = (&raw mut memory.0).expose_provenance();
        cairn_stack {
            position: start,
            limit: start + bytes,
            frame: ptr::null_mut(),
            owner: ptr::null_mut(),
            serial: 0,
            inside: ptr::null_mut(),
        }
    }

    #[test]
    fn blocks_lie_side_by_side_at_their_alignment() {
        let mut memory = Memory([MaybeUninit::uninit(); 8192]);
        let mut stack = head(&mut memory, 1024);
        let stack = &raw mut stack;
        // SAFETY: the head's memory is valid during the test, and each block is written only within
        // its size.
        unsafe {
            let mut end = (*stack).position;
            for (size, align) in [(1, 1), (8, 8), (3, 2), (40, 16), (5, 64), (100, 32)] {
                let block = alloc(stack, size, align);
                assert!(!block.is_null() && block.addr() % align == 0 && block.addr() >= end);
                block.write_bytes(7, size);
                end = block.addr() + size;
            }
            assert!(alloc(stack, 1024, 1).is_null());
            assert!(alloc(stack, 1, 2 * sys::CAIRN_STACK_INLINE_ALIGN).is_null());
            assert!(alloc(stack, 8, 4096).is_null(), "an aligned start behind the limit");
            assert!(alloc(stack, 0, 1).is_null(), "size 0 is the slow half's");
            assert_eq!((*stack).position, (end + 7) & !7);
        }
    }

    #[test]
    fn frames_end_in_the_reverse_order() {
        let mut memory = Memory([MaybeUninit::uninit(); 8192]);
        let mut stack = head(&mut memory, 256);
        let stack = &raw mut stack;
        // SAFETY: the head's memory is valid during the test, and each block is written only within
        // its size.
        unsafe {
            let start = (*stack).position;
            let outer = push(stack).unwrap();
            let inner = push(stack).unwrap();
            assert!(!pop(stack, outer), "that is the slow half's");
            assert!(!alloc(stack, 100, 8).is_null());
            assert!(pop(stack, inner));
            assert!(pop(stack, outer));
            assert_eq!((*stack).position, start);
            assert!((*stack).frame.is_null());
        }
    }

    #[test]
    fn a_head_that_is_not_made_yet_and_a_full_one_leave_it_to_the_slow_half() {
        let mut memory = Memory([MaybeUninit::uninit(); 8192]);
        let mut stack = head(&mut memory, 8);
        // SAFETY: the head's memory is valid during the test, and each block is written only within
        // its size.
        unsafe {
            assert!(push(&raw mut stack).is_none());
            (stack.position, stack.limit) = (0, 0);
            assert!(push(&raw mut stack).is_none());
            assert!(alloc(&raw mut stack, 1, 1).is_null());
            assert!(alloc(&raw mut stack, 1, 4096).is_null());
        }
    }

    #[test]
    fn every_so_many_pushes_look_at_the_clock() {
        let mut memory = Memory([MaybeUninit::uninit(); 8192]);
        let mut stack = head(&mut memory, 1024);
        stack.serial = sys::CAIRN_STACK_PUSH_TICK as u64 - 1;
        // SAFETY: the head's memory is valid during the test, and each block is written only within
        // its size.
        unsafe { assert!(push(&raw mut stack).is_none()) };
    }
}
