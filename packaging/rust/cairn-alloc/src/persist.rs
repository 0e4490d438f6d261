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

/// Types whose bytes mean the same in the next run of the program.
///
/// # Safety
/// No references, pointers, handles or addresses in it, nothing that needs a drop, and a layout
/// that does not change (`#[repr(C)]`, or a primitive). Pointers into the heap are [`Rel`].
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
        // SAFETY: plain bytes.
        unsafe impl Persist for $type {}
    )*};
}
persist!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char);

// SAFETY: its elements side by side.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {}
// SAFETY: a distance within the heap.
unsafe impl<T: ?Sized + 'static> Persist for Rel<T> {}
// SAFETY: the same, or 0.
unsafe impl<T: ?Sized + 'static> Persist for Option<Rel<T>> {}

/// A commit under way: see [`PersistentHeap::commit_async`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(sys::cairn_persist_ticket);

/// A heap in a file. After a crash at any instant it opens in the state of the last commit that was
/// acknowledged, or of a later one that was under way, whole.
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
/// Why some functions are unsafe: the file does not know types, and a [`Rel`] is a number that may
/// come from another heap, or lead to a block that was freed. So reading one is a promise of the
/// caller's. References borrow the heap, so none of them is left when an abort takes memory back:
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

// SAFETY: any thread may call; what must have no other writer takes &mut.
unsafe impl Send for PersistentHeap {}
// SAFETY: as above; what takes & only may be called by several threads at once.
unsafe impl Sync for PersistentHeap {}

impl PersistentHeap {
    /// A block with this value. It belongs to the heap until [`free`](Self::free).
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let number = heap.alloc(7u64)?;
    /// heap.set_root(c"seven", Some(number))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When memory is out, or the heap is open for reading only.
    pub fn alloc<T: Persist>(&mut self, value: T) -> Result<Rel<T>, Error> {
        const { assert!(!mem::needs_drop::<T>(), "nothing in a persistent heap is dropped") };
        let place = self.alloc_bytes(size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: a new block with room for a T.
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

    /// Frees a block, without a drop.
    ///
    /// # Safety
    /// The block is this heap's, of this type, and no [`Rel`] to it is read any more.
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

    /// What lies there.
    ///
    /// # Safety
    /// There is a live `T` of this heap at that place.
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

    /// The same, to be written: plain stores, which the next commit makes durable.
    ///
    /// # Safety
    /// There is a live `T` of this heap at that place, and the heap is not open for reading only.
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

    /// The block under a name. The type is the caller's word: it is checked by nobody.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) {
    /// let place = heap.root::<u64>(c"seven");
    /// # }
    /// ```
    #[must_use]
    pub fn root<T: Persist>(&self, name: &CStr) -> Option<Rel<T>> {
        // SAFETY: any thread may ask.
        let block = unsafe { sys::cairn_persist_get_root(self.heap.as_ptr(), name.as_ptr()) };
        if block.is_null() { None } else { Rel::between(self.base.as_ptr(), block.cast()) }
    }

    /// Puts a block under a name of 1 to 255 bytes, or nothing.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.set_root::<u64>(c"seven", None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When memory is out, for a name that cannot be, or for a heap that is open for reading only.
    pub fn set_root<T: Persist>(
        &mut self,
        name: &CStr,
        place: Option<Rel<T>>,
    ) -> Result<(), Error> {
        let block = place.map_or(ptr::null_mut(), |place| place.in_heap_at(self.base.as_ptr()));
        // SAFETY: the name is there; the block is kept by its place only.
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
    /// `ENOENT` when there is none.
    pub fn remove_root(&mut self, name: &CStr) -> Result<(), Error> {
        // SAFETY: the name is there.
        Error::check(unsafe { sys::cairn_persist_remove_root(self.heap.as_ptr(), name.as_ptr()) })
    }

    /// Makes the heap's state durable as a whole.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.commit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Then it is not committed and memory is as it was: `ENOSPC` when the log cannot grow,
    /// `EROFS`, …
    pub fn commit(&mut self) -> Result<(), Error> {
        // SAFETY: no other thread writes: this borrows the heap.
        Error::check(unsafe { sys::cairn_persist_commit(self.heap.as_ptr()) })
    }

    /// Fixes what is committed, without waiting for the disk: [`wait`](Self::wait) does that, also
    /// for all earlier ones.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// let ticket = heap.commit_async()?;
    /// heap.wait(ticket)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_async(&mut self) -> Result<Ticket, Error> {
        let mut ticket = 0;
        // SAFETY: no other thread writes: this borrows the heap.
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
    /// When the disk failed; then it is not known whether the commit is durable.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        // SAFETY: any thread may wait.
        Error::check(unsafe { sys::cairn_persist_wait(self.heap.as_ptr(), ticket.0) })
    }

    /// Back to the state of the last commit. Blocks allocated since do not exist any more.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.abort()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// For a heap that is open for reading only, or in a child of fork.
    pub fn abort(&mut self) -> Result<(), Error> {
        // SAFETY: no reference into the heap is left: this borrows it.
        Error::check(unsafe { sys::cairn_persist_abort(self.heap.as_ptr()) })
    }

    /// A transaction: it is aborted unless it is committed, also when a panic passes.
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

    /// Brings all that is logged to the heap's file, which commits do bit by bit.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.checkpoint()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What the file system says.
    pub fn checkpoint(&self) -> Result<(), Error> {
        // SAFETY: any thread, beside anything but close.
        Error::check(unsafe { sys::cairn_persist_checkpoint(self.heap.as_ptr()) })
    }

    /// Walks everything.
    ///
    /// ```no_run
    /// # fn f(heap: &mut cairn_alloc::persist::PersistentHeap) {
    /// assert_eq!(heap.verify(), Ok(()));
    /// # }
    /// ```
    ///
    /// # Errors
    /// What is not sound.
    pub fn verify(&mut self) -> Result<(), &'static str> {
        // SAFETY: it never follows what it has not checked; the sentence is static.
        unsafe {
            let found = sys::cairn_persist_check(self.heap.as_ptr());
            if found.is_null() {
                Ok(())
            } else {
                Err(CStr::from_ptr(found).to_str().unwrap_or("damaged"))
            }
        }
    }

    /// The heap's numbers: `cairn/persist.h` says what each field means.
    ///
    /// ```no_run
    /// # fn f(heap: &cairn_alloc::persist::PersistentHeap) {
    /// println!("{} bytes in blocks", heap.stats().used_bytes);
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> sys::cairn_persist_stats {
        // SAFETY: plain numbers and a pointer, which the call fills.
        unsafe {
            let mut stats = mem::zeroed();
            sys::cairn_persist_read_stats(self.heap.as_ptr(), &raw mut stats);
            stats
        }
    }

    /// Ends the use and says how that went. What is not committed is lost.
    ///
    /// ```no_run
    /// # fn f(heap: cairn_alloc::persist::PersistentHeap) -> Result<(), cairn_alloc::Error> {
    /// heap.close()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the log could not be brought to the file: the next open does so, nothing is lost.
    pub fn close(self) -> Result<(), Error> {
        let heap = mem::ManuallyDrop::new(self).heap;
        // SAFETY: used no more.
        Error::check(unsafe { sys::cairn_persist_close(heap.as_ptr()) })
    }
}

impl Drop for PersistentHeap {
    fn drop(&mut self) {
        // SAFETY: used no more.
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
    /// As [`PersistentHeap::commit`]; the changes are undone then.
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
            // There is nobody to tell; a heap that is open for reading only has nothing to undo.
            let _ = self.heap.abort();
        }
    }
}
