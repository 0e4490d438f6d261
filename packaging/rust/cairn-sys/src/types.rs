// Made by dev/rust_bindings.py from the headers in include/cairn: change those.
use core::ffi::{c_char, c_int, c_uint, c_void};

pub const CAIRN_VERSION_MAJOR: usize = 1;
pub const CAIRN_VERSION_MINOR: usize = 0;
pub const CAIRN_VERSION_PATCH: usize = 0;
pub const CAIRN_FIFO_PAGE_SHIFT: usize = 12;
pub const CAIRN_FIFO_PAGES: usize = 512;
pub const CAIRN_FIFO_INLINE_ALIGN: usize = 4096;
pub const CAIRN_RING_INLINE_ALIGN: usize = 4096;
pub const CAIRN_STACK_INLINE_ALIGN: usize = 4096;
pub const CAIRN_STACK_LIMIT_GRANULE: usize = 64;
pub const CAIRN_STACK_PUSH_TICK: usize = 256;
pub const CAIRN_CAN_FREE: c_uint = 1;
pub const CAIRN_CAN_RESIZE: c_uint = 2;
pub const CAIRN_FREES_TOGETHER: c_uint = 4;
pub const CAIRN_ANY_THREAD: c_uint = 8;
pub const CAIRN_ANY_THREAD_FREE: c_uint = 16;
pub const CAIRN_ONE_SIZE: c_uint = 32;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_allocator_operations {
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub resize: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
    pub capabilities: c_uint,
    pub name: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_allocator {
    pub context: *mut c_void,
    pub operations: *const cairn_allocator_operations,
}
pub const CAIRN_OUT_OF_MEMORY_TRIES: c_uint = 16;
pub type cairn_line_function = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
pub const CAIRN_VALUE_BYTES: c_uint = 320;
pub const CAIRN_ANSWER_BYTES: c_uint = 65536;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_fifo {
    pub position: usize,
    pub limit: usize,
    pub owner: *mut c_void,
    pub made: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_fifo_options {
    pub max_bytes: usize,
    pub name: *const c_char,
    pub any_thread_free: bool,
    pub out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
    pub out_of_memory_context: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_fifo_stats {
    pub segment_bytes: usize,
    pub spare_bytes: usize,
    pub reserved_bytes: usize,
    pub returned_bytes: usize,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_fifo_group {
    pub tag: usize,
    pub live: [i32; 512],
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_mallinfo2 {
    pub arena: usize,
    pub ordblks: usize,
    pub smblks: usize,
    pub hblks: usize,
    pub hblkhd: usize,
    pub usmblks: usize,
    pub fsmblks: usize,
    pub uordblks: usize,
    pub fordblks: usize,
    pub keepcost: usize,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_mallinfo {
    pub arena: c_int,
    pub ordblks: c_int,
    pub smblks: c_int,
    pub hblks: c_int,
    pub hblkhd: c_int,
    pub usmblks: c_int,
    pub fsmblks: c_int,
    pub uordblks: c_int,
    pub fordblks: c_int,
    pub keepcost: c_int,
}
pub const CAIRN_PAGES_ZERO: c_uint = 1;
pub const CAIRN_PAGES_HUGE: c_uint = 2;
pub const CAIRN_PAGES_POPULATE: c_uint = 4;
#[repr(C)]
#[derive(Debug)]
pub struct cairn_persist {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
pub const CAIRN_PERSIST_CREATE: c_uint = 1;
pub const CAIRN_PERSIST_READ_ONLY: c_uint = 2;
pub const CAIRN_PERSIST_FIXED: c_uint = 4;
pub const CAIRN_PERSIST_WRITERS_PAUSE: c_uint = 8;
pub const CAIRN_PERSIST_CHECK: c_uint = 16;
pub type cairn_persist_tracking = c_uint;
pub const CAIRN_PERSIST_AUTO: cairn_persist_tracking = 0;
pub const CAIRN_PERSIST_USERFAULT: cairn_persist_tracking = 1;
pub const CAIRN_PERSIST_SCAN: cairn_persist_tracking = 2;
pub const CAIRN_PERSIST_PAGEMAP: cairn_persist_tracking = 3;
pub const CAIRN_PERSIST_PROTECT: cairn_persist_tracking = 4;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_persist_options {
    pub flags: c_uint,
    pub tracking: cairn_persist_tracking,
    pub address: *mut c_void,
    pub size_bytes: usize,
    pub capacity_bytes: usize,
    pub log_bytes: usize,
    pub why: *mut *const c_char,
}
pub type cairn_persist_visit =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut c_void) -> bool;
pub type cairn_persist_ticket = u64;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_persist_stats {
    pub address: *mut c_void,
    pub moved: bool,
    pub tracking: cairn_persist_tracking,
    pub size_bytes: usize,
    pub capacity_bytes: usize,
    pub used_bytes: usize,
    pub free_bytes: usize,
    pub used_blocks: usize,
    pub last_commit: u64,
    pub durable_commit: u64,
    pub recovered_commits: u64,
    pub log_bytes: u64,
    pub logged_pages: u64,
    pub logged_bytes: u64,
    pub skipped_pages: u64,
    pub syncs: u64,
    pub error: c_int,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_offset {
    pub distance: u64,
}
#[repr(C)]
#[derive(Debug)]
pub struct cairn_pool {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_pool_options {
    pub name: *const c_char,
    pub max_objects: usize,
    pub shared: bool,
    pub out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
    pub out_of_memory_context: *mut c_void,
}
pub type cairn_pool_visit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> bool;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_pool_stats {
    pub name: *const c_char,
    pub object_bytes: usize,
    pub live_objects: usize,
    pub free_objects: usize,
    pub slabs: usize,
    pub slab_bytes: usize,
}
#[repr(C)]
#[derive(Debug)]
pub struct cairn_pool_magazine {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
pub const CAIRN_POOL_RECENT: c_uint = 64;
pub const CAIRN_POOL_RECENT_SHIFT: c_uint = 16;
pub const CAIRN_POOL_NUMBER_SHIFT: c_uint = 16;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_pool_entry {
    pub object: *mut c_void,
    pub state: *mut u8,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_pool_view {
    pub top: *mut cairn_pool_entry,
    pub limit: *mut cairn_pool_entry,
    pub inverse: u64,
    pub numbers: u64,
    pub recent: [usize; CAIRN_POOL_RECENT as usize],
}
#[repr(C)]
#[derive(Debug)]
pub struct cairn_private_heap {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_private_heap_options {
    pub limit_bytes: usize,
    pub out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
    pub context: *mut c_void,
}
pub const CAIRN_PRIVATE_HEAP_TRIES: c_uint = 16;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_private_heap_stats {
    pub live_bytes: usize,
    pub live_blocks: usize,
    pub large_bytes: usize,
    pub large_blocks: usize,
    pub held_bytes: usize,
    pub peak_bytes: usize,
    pub limit_bytes: usize,
    pub refusals: usize,
}
pub const CAIRN_PROFILE_INTERVAL: c_uint = 524288;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_profile_stats {
    pub is_on: bool,
    pub interval_bytes: usize,
    pub samples: u64,
    pub live_samples: u64,
    pub allocated_bytes: u64,
    pub live_bytes: u64,
    pub sites: u64,
    pub lost_stacks: u64,
    pub lost_blocks: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_ring {
    pub position: usize,
    pub limit: usize,
    pub owner: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_frame {
    pub chunk: *mut c_void,
    pub index: u32,
    pub generation: u32,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_checkpoint {
    pub chunk: *mut c_void,
    pub position: usize,
    pub sealed: u64,
    pub opened: u64,
    pub open: bool,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_ring_options {
    pub max_bytes: usize,
    pub name: *const c_char,
    pub out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
    pub out_of_memory_context: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_ring_stats {
    pub chunk_bytes: usize,
    pub spare_bytes: usize,
    pub sealed: u64,
    pub chunks: usize,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_mark {
    pub frame: *mut cairn_stack_frame,
    pub serial: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_stack {
    pub position: usize,
    pub limit: usize,
    pub frame: *mut cairn_stack_frame,
    pub owner: *mut c_void,
    pub serial: u64,
    pub inside: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_stack_options {
    pub reserve_bytes: usize,
    pub max_bytes: usize,
    pub name: *const c_char,
    pub buffer: *mut c_void,
    pub buffer_bytes: usize,
    pub fixed: bool,
    pub out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
    pub out_of_memory_context: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_stack_stats {
    pub used_bytes: usize,
    pub resident_bytes: usize,
    pub reserved_bytes: usize,
    pub blocks: usize,
    pub frames: usize,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_stack_frame {
    pub previous: *mut cairn_stack_frame,
    pub serial: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_heap_stats {
    pub allocated_bytes: usize,
    pub allocated_blocks: usize,
    pub large_bytes: usize,
    pub large_blocks: usize,
    pub guarded_bytes: usize,
    pub guarded_blocks: usize,
    pub active_bytes: usize,
    pub slab_bytes: usize,
    pub free_bytes: usize,
    pub dirty_bytes: usize,
    pub mapped_bytes: usize,
    pub retained_bytes: usize,
    pub metadata_bytes: usize,
    pub thread_heaps: usize,
    pub purged_bytes: u64,
    pub purges: u64,
    pub map_calls: u64,
    pub protect_calls: u64,
    pub unmap_calls: u64,
    pub advise_calls: u64,
    pub remap_calls: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_heap_class_stats {
    pub block_bytes: usize,
    pub live_blocks: usize,
    pub free_blocks: usize,
    pub slabs: usize,
    pub slab_bytes: usize,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_heap_thread_stats {
    pub heap: *const c_void,
    pub is_current: bool,
    pub is_orphan: bool,
    pub live_blocks: usize,
    pub live_bytes: usize,
    pub slabs: usize,
    pub slab_bytes: usize,
}
#[repr(C)]
#[derive(Debug)]
pub struct cairn_tlsf {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
pub const CAIRN_TLSF_ALLOC_INSTRUCTIONS: c_uint = 520;
pub const CAIRN_TLSF_FREE_INSTRUCTIONS: c_uint = 250;
pub const CAIRN_TLSF_REGION_INSTRUCTIONS: c_uint = 12;
pub const CAIRN_TLSF_REGION_OVERHEAD_BYTES: c_uint = 32;
pub const CAIRN_TLSF_BLOCK_OVERHEAD_BYTES: c_uint = 8;
pub const CAIRN_TLSF_BLOCK_MIN_BYTES: c_uint = 24;
pub const CAIRN_TLSF_ALIGNMENT_BYTES: c_uint = 16;
pub const CAIRN_TLSF_NEW_BYTES: c_uint = 1048576;
pub type cairn_tlsf_visit = unsafe extern "C" fn(*mut c_void, usize, bool, *mut c_void) -> bool;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cairn_tlsf_stats {
    pub total_bytes: usize,
    pub used_bytes: usize,
    pub free_bytes: usize,
    pub least_free_bytes: usize,
    pub largest_request_bytes: usize,
    pub used_blocks: usize,
    pub regions: usize,
}
#[repr(C)]
#[derive(Debug)]
pub struct cairn_tlsf_shared {
    _opaque: [u8; 0],
    _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
