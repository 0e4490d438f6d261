//! A heap in a file that survives the program, a kill and a power loss: `cairn/persist.h`.

use crate::Error;
use crate::offset::Rel;
use cairn_sys as sys;
use core::ffi::CStr;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

mod open;
pub use open::{OpenError, OpenOptions};

/// Types whose bytes mean the same value in the next run of the program.
///
/// # Safety
/// The type has no references, pointers, handles or addresses, needs no drop, and has a layout that
/// does not change (`#[repr(C)]`, or a primitive). Pointers into the heap are [`Rel`].
///
/// ```
/// use cairn_alloc::{offset::Rel, persist::Persist};
///
/// #[repr(C)]
/// struct Node { value: u64, next: Option<Rel<Node>> }
/// // SAFETY: a number and a place in the heap, laid out as C has it.
/// unsafe impl Persist for Node {}
/// ```
pub unsafe trait Persist: 'static {}

macro_rules! persist {
    ($($type:ty)*) => {$(
        // SAFETY: every value of these types is plain bytes.
        unsafe impl Persist for $type {}
    )*};
}
persist!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char);

// SAFETY: an array contains only its elements.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {}
// SAFETY: it is a distance within the heap.
unsafe impl<T: ?Sized + 'static> Persist for Rel<T> {}
// SAFETY: it is a distance within the heap, or 0 for `None`.
unsafe impl<T: ?Sized + 'static> Persist for Option<Rel<T>> {}

/// A commit that is not yet known to be durable: see [`PersistentHeap::commit_async`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(sys::cairn_persist_ticket);

/// A heap in a file. After a crash at any instant, it opens in the complete state of one commit:
/// the last one that was acknowledged, or a later one that was in progress.
///
/// ```
/// use cairn_alloc::persist::{OpenOptions, Persist};
///
/// #[repr(C)]
/// struct Visits { count: u64 }
/// // SAFETY: a number, laid out as C has it.
/// unsafe impl Persist for Visits {}
///
/// # let folder = std::env::temp_dir().join(format!("cairn-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("visits.heap");
/// for run in 1..=2 {
///     let mut heap = OpenOptions::new().create(true).open(&path)?;
///     let visits = match heap.root::<Visits>(c"visits") {
///         Some(visits) => visits,
///         None => {
///             let visits = heap.alloc(Visits { count: 0 })?;
///             heap.set_root(c"visits", Some(visits))?;
///             visits
///         }
///     };
///     // SAFETY: this root was always set to a Visits.
///     let visits = unsafe { heap.get_mut(visits) };
///     visits.count += 1;
///     assert_eq!(visits.count, run);
///     heap.commit()?;
/// }
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Some functions are unsafe because the file does not know types, and because a [`Rel`] is a
/// number that may come from another heap or lead to a block that was freed. So the caller promises
/// that it leads to a live value. References borrow the heap, so none exists when an abort takes
/// memory back:
///
/// ```compile_fail,E0499
/// # let mut heap = cairn_alloc::persist::OpenOptions::new().open("x").unwrap();
/// # let place = heap.root::<u64>(c"x").unwrap();
/// let number = unsafe { heap.get_mut(place) };
/// heap.abort();
/// *number = 1;
/// ```
#[derive(Debug)]
pub struct PersistentHeap {
    heap: NonNull<sys::cairn_persist>,
    base: NonNull<u8>,
}

// SAFETY: any thread may call every function; functions that allow no other writer take &mut.
unsafe impl Send for PersistentHeap {}
// SAFETY: several threads may call the functions that take & at the same time.
unsafe impl Sync for PersistentHeap {}

impl PersistentHeap {
    /// Allocates a block and stores the value in it. The block exists until [`free`](Self::free).
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let number = heap.alloc(7u64)?;
    /// heap.set_root(c"seven", Some(number))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When memory is out, or the heap is read-only.
    pub fn alloc<T: Persist>(&mut self, value: T) -> Result<Rel<T>, Error> {
        const { assert!(!mem::needs_drop::<T>(), "nothing in a persistent heap is dropped") };
        let place = self.alloc_bytes(size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: the block is new and has room for a T.
        unsafe { place.write(value) };
        Rel::between(self.base.as_ptr(), place).ok_or(Error::INVALID)
    }

    fn alloc_bytes(&mut self, size: usize, align: usize) -> Result<*mut u8, Error> {
        // SAFETY: any thread may allocate.
        let block = unsafe {
            let allocator = sys::cairn_persist_allocator(self.heap.as_ptr());
            let alloc = (*allocator.operations).alloc.ok_or(Error::INVALID)?;
            alloc(allocator.context, size, align)
        };
        if block.is_null() { Err(Error::last()) } else { Ok(block.cast()) }
    }

    /// Frees a block without dropping its value.
    ///
    /// # Safety
    /// The block belongs to this heap and has this type, and no [`Rel`] to it is read afterwards.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let number = heap.alloc(7u64)?;
    /// // SAFETY: nothing else knows the place.
    /// unsafe { heap.free(number) };
    /// # Ok(()) }
    /// ```
    pub unsafe fn free<T: Persist>(&mut self, place: Rel<T>) {
        let block = place.in_heap_at(self.base.as_ptr());
        // SAFETY: the caller's promise.
        unsafe {
            let allocator = sys::cairn_persist_allocator(self.heap.as_ptr());
            if let Some(free) = (*allocator.operations).free {
                free(allocator.context, block.cast(), size_of::<T>());
            }
        }
    }

    /// Borrows the value at a place.
    ///
    /// # Safety
    /// A live `T` of this heap is stored at that place.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let number = heap.alloc(7u64)?;
    /// // SAFETY: just allocated.
    /// assert_eq!(unsafe { *heap.get(number) }, 7);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub unsafe fn get<T: Persist>(&self, place: Rel<T>) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*place.in_heap_at(self.base.as_ptr()) }
    }

    /// Borrows the value at a place for writing. Writes are plain stores; the next commit makes
    /// them durable.
    ///
    /// # Safety
    /// A live `T` of this heap is stored at that place, and the heap is not read-only.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let number = heap.alloc(7u64)?;
    /// // SAFETY: just allocated.
    /// unsafe { *heap.get_mut(number) += 1 };
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub unsafe fn get_mut<T: Persist>(&mut self, place: Rel<T>) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *place.in_heap_at(self.base.as_ptr()) }
    }

    /// Returns the block under a name. The caller states its type, which the heap cannot check.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) {
    /// let place = heap.root::<u64>(c"seven");
    /// # }
    /// ```
    #[must_use]
    pub fn root<T: Persist>(&self, name: &CStr) -> Option<Rel<T>> {
        // SAFETY: any thread may look up a name.
        let block = unsafe { sys::cairn_persist_get_root(self.heap.as_ptr(), name.as_ptr()) };
        if block.is_null() { None } else { Rel::between(self.base.as_ptr(), block.cast()) }
    }

    /// Stores a block, or nothing, under a name of 1 to 255 bytes.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.set_root::<u64>(c"seven", None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When memory is out, the name is invalid, or the heap is read-only.
    pub fn set_root<T: Persist>(
        &mut self,
        name: &CStr,
        place: Option<Rel<T>>,
    ) -> Result<(), Error> {
        let block = place.map_or(ptr::null_mut(), |place| place.in_heap_at(self.base.as_ptr()));
        // SAFETY: the name is valid during the call; the heap stores the block's place only.
        Error::check(unsafe {
            sys::cairn_persist_set_root(self.heap.as_ptr(), name.as_ptr(), block.cast())
        })
    }

    /// Removes a name.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.remove_root(c"seven")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ENOENT` when the name does not exist.
    pub fn remove_root(&mut self, name: &CStr) -> Result<(), Error> {
        // SAFETY: the name is valid during the call.
        Error::check(unsafe { sys::cairn_persist_remove_root(self.heap.as_ptr(), name.as_ptr()) })
    }

    /// Makes all changes since the last commit durable, all or none.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.commit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The changes are not committed, and memory is unchanged: `ENOSPC` when the log cannot grow,
    /// `EROFS`, …
    pub fn commit(&mut self) -> Result<(), Error> {
        // SAFETY: no other thread writes, because this function borrows the heap exclusively.
        Error::check(unsafe { sys::cairn_persist_commit(self.heap.as_ptr()) })
    }

    /// Fixes what this commit contains, without waiting for the disk. [`wait`](Self::wait) waits
    /// until it and all earlier commits are durable.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let ticket = heap.commit_async()?;
    /// heap.wait(ticket)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub fn commit_async(&mut self) -> Result<Ticket, Error> {
        let mut ticket = 0;
        // SAFETY: no other thread writes, because this function borrows the heap exclusively.
        Error::check(unsafe {
            sys::cairn_persist_commit_async(self.heap.as_ptr(), &raw mut ticket)
        })?;
        Ok(Ticket(ticket))
    }

    /// Returns when that commit is durable. Any thread may wait.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let ticket = heap.commit_async()?;
    /// heap.wait(ticket)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the disk failed; then the commit may be durable or not.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        // SAFETY: any thread may wait.
        Error::check(unsafe { sys::cairn_persist_wait(self.heap.as_ptr(), ticket.0) })
    }

    /// Returns to the state of the last commit. Blocks allocated since then no longer exist.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.abort()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the heap is read-only, or in a child of fork.
    pub fn abort(&mut self) -> Result<(), Error> {
        // SAFETY: no reference into the heap exists, because this function borrows it exclusively.
        Error::check(unsafe { sys::cairn_persist_abort(self.heap.as_ptr()) })
    }

    /// Starts a transaction. Dropping it, also during a panic, aborts it unless it was committed.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let mut transaction = heap.transaction();
    /// let number = transaction.alloc(7u64)?;
    /// transaction.set_root(c"seven", Some(number))?;
    /// transaction.commit()?;
    /// # Ok(()) }
    /// ```
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction { heap: self, done: false }
    }

    /// Copies all logged changes to the heap's file. Commits also do this, in small steps.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.checkpoint()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn checkpoint(&self) -> Result<(), Error> {
        // SAFETY: any thread may call it during any other call except close.
        Error::check(unsafe { sys::cairn_persist_checkpoint(self.heap.as_ptr()) })
    }

    /// Checks all structures of the heap.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) {
    /// assert_eq!(heap.verify(), Ok(()));
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first structure that is not sound.
    pub fn verify(&mut self) -> Result<(), &'static str> {
        // SAFETY: the function follows no pointer before checking it; the sentence is static.
        unsafe {
            let found = sys::cairn_persist_check(self.heap.as_ptr());
            if found.is_null() {
                Ok(())
            } else {
                Err(CStr::from_ptr(found).to_str().unwrap_or("damaged"))
            }
        }
    }

    /// Reads the heap's statistics: `cairn/persist.h` explains each field.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) {
    /// println!("{} bytes in blocks", heap.stats().used_bytes);
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> sys::cairn_persist_stats {
        // SAFETY: the struct has numbers and a pointer, which the call fills.
        unsafe {
            let mut stats = mem::zeroed();
            sys::cairn_persist_read_stats(self.heap.as_ptr(), &raw mut stats);
            stats
        }
    }

    /// Closes the heap and returns whether that worked. Changes that are not committed are lost.
    ///
    /// ```no_run
    /// # fn f(heap: cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.close()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the log could not be copied to the file. The next open does so; no commit is lost.
    pub fn close(self) -> Result<(), Error> {
        let heap = mem::ManuallyDrop::new(self).heap;
        // SAFETY: the heap is not used afterwards.
        Error::check(unsafe { sys::cairn_persist_close(heap.as_ptr()) })
    }
}

impl Drop for PersistentHeap {
    fn drop(&mut self) {
        // SAFETY: the heap is not used afterwards.
        unsafe { sys::cairn_persist_close(self.heap.as_ptr()) };
    }
}

/// Changes of a [`PersistentHeap`] that are committed together or not at all.
#[derive(Debug)]
pub struct Transaction<'h> {
    heap: &'h mut PersistentHeap,
    done: bool,
}

impl Transaction<'_> {
    /// Makes the changes durable.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.transaction().commit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`PersistentHeap::commit`]; then the changes are undone.
    pub fn commit(mut self) -> Result<(), Error> {
        self.heap.commit()?;
        self.done = true;
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = PersistentHeap;

    fn deref(&self) -> &PersistentHeap {
        self.heap
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut PersistentHeap {
        self.heap
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.done {
            // A drop cannot return an error. Only a read-only heap refuses, and it has nothing to
            // undo.
            let _ = self.heap.abort();
        }
    }
}
