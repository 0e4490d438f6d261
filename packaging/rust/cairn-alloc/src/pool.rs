//! Objects of one type, allocated and freed in any order: `cairn/pool.h`.

use crate::Error;
use cairn_sys as sys;
use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// Marks a [`Pool`] without a lock, for one thread at a time.
#[derive(Debug)]
pub enum Local {}

/// Marks a [`Pool`] for all threads: it has a lock, and each thread may have a [`Magazine`].
#[derive(Debug)]
pub enum Shared {}

/// A pool of `T`. Dropping a [`PoolBox`] puts its object back. A box may not outlive the pool:
///
/// ```
/// use cairn_alloc::Pool;
///
/// struct Session { user: u64 }
///
/// let sessions = Pool::new()?;
/// let first = sessions.get(Session { user: 1 })?;
/// let second = sessions.get(Session { user: 2 })?;
/// drop(first);
/// assert_eq!(second.user, 2);
/// # Ok::<(), cairn_alloc::Error>(())
/// ```
///
/// ```compile_fail,E0597
/// let kept = { let pool = cairn_alloc::Pool::new().unwrap(); pool.get(1).unwrap() };
/// ```
///
/// ```compile_fail,E0277
/// let pool = cairn_alloc::Pool::new().unwrap();   // Local: not for two threads at once
/// std::thread::scope(|threads| { threads.spawn(|| drop(pool.get(1))); });
/// ```
pub struct Pool<T, M = Local> {
    pool: NonNull<sys::cairn_pool>,
    of: PhantomData<(T, M)>,
}

// SAFETY: any thread may use a pool, one at a time; no object is in use when the pool moves.
unsafe impl<T: Send, M> Send for Pool<T, M> {}
// SAFETY: any thread may use a shared pool at any time; values may move between threads through it.
unsafe impl<T: Send> Sync for Pool<T, Shared> {}

impl<T> Pool<T, Local> {
    /// Creates a pool for one thread at a time.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<[u8; 40]>::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; `EINVAL` for types larger than 64 MiB or aligned to more than 2 MiB.
    pub fn new() -> Result<Self, Error> {
        Self::make(0, false)
    }

    /// Creates a pool with a limit on the number of objects in use.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::with_limit(1)?;
    /// let only = pool.get(1)?;
    /// assert!(pool.get(2).unwrap_err().is_out_of_memory());
    /// drop(only);
    /// assert_eq!(*pool.get(3)?, 3);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_limit(max_objects: usize) -> Result<Self, Error> {
        Self::make(max_objects, false)
    }
}

impl<T> Pool<T, Shared> {
    /// Creates a pool for all threads.
    ///
    /// ```
    /// use cairn_alloc::{Pool, Shared};
    ///
    /// let pool = Pool::<u64, Shared>::shared()?;
    /// std::thread::scope(|threads| {
    ///     for number in 0..4 {
    ///         let pool = &pool;
    ///         threads.spawn(move || assert_eq!(*pool.get(number).unwrap(), number));
    ///     }
    /// });
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`new`](Pool::new).
    pub fn shared() -> Result<Self, Error> {
        Self::make(0, true)
    }

    /// Attaches a magazine, the thread's own store of objects. Most gets and puts through it take
    /// no lock.
    ///
    /// ```
    /// use cairn_alloc::{Pool, Shared};
    ///
    /// let pool = Pool::<u64, Shared>::shared()?;
    /// let mut magazine = pool.attach()?;
    /// let object = magazine.get(5)?;
    /// magazine.put(object);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out.
    pub fn attach(&self) -> Result<Magazine<'_, T>, Error> {
        // SAFETY: the pool is shared.
        let magazine = unsafe { sys::cairn_pool_attach(self.pool.as_ptr()) };
        Ok(Magazine { magazine: NonNull::new(magazine).ok_or_else(Error::last)?, pool: self })
    }
}

impl<T, M> Pool<T, M> {
    fn make(max_objects: usize, shared: bool) -> Result<Self, Error> {
        let options = sys::cairn_pool_options {
            name: c"Rust pool".as_ptr(),
            max_objects,
            shared,
            out_of_memory: None,
            out_of_memory_context: ptr::null_mut(),
        };
        // SAFETY: the options are valid during the call, and the name is static.
        let pool = unsafe {
            sys::cairn_pool_new(size_of::<T>().max(1), align_of::<T>(), &raw const options)
        };
        Ok(Pool { pool: NonNull::new(pool).ok_or_else(Error::last)?, of: PhantomData })
    }

    /// Takes an object and moves the value to it.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// let mut text = pool.get(String::from("a"))?;
    /// text.push('b');
    /// assert_eq!(*text, "ab");
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out or the limit is reached; then the value is dropped.
    pub fn get(&self, value: T) -> Result<PoolBox<'_, T, M>, Error> {
        // SAFETY: one thread uses the pool at a time, or the pool is shared; Sync ensures it.
        let object = unsafe { sys::cairn_sys_pool_get(self.pool.as_ptr()) };
        // SAFETY: the object belongs to this pool and is not in use.
        unsafe { PoolBox::fill(object.cast(), self, value) }
    }

    /// Returns all memory without objects in use to the system. Returns how many bytes it released.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// drop(pool.get([0u8; 1000])?);
    /// assert!(pool.trim() > 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn trim(&self) -> usize {
        // SAFETY: one thread uses the pool at a time, or the pool is shared.
        unsafe { sys::cairn_pool_trim(self.pool.as_ptr()) }
    }

    /// Returns how many objects are in use, including those in magazines.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// let object = pool.get(1)?;
    /// assert_eq!(pool.live(), 1);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn live(&self) -> usize {
        // SAFETY: one thread uses the pool at a time, or the pool is shared. The call fills the
        // struct.
        unsafe {
            let mut stats = mem::zeroed::<sys::cairn_pool_stats>();
            sys::cairn_pool_read_stats(self.pool.as_ptr(), &raw mut stats);
            stats.live_objects
        }
    }

    #[cfg(feature = "allocator-api2")]
    pub(crate) fn as_ptr(&self) -> *mut sys::cairn_pool {
        self.pool.as_ptr()
    }
}

impl<T, M> Drop for Pool<T, M> {
    fn drop(&mut self) {
        // SAFETY: no box or magazine borrows the pool. If one was forgotten instead of dropped, the
        // call returns EBUSY and the pool is not freed.
        unsafe { sys::cairn_pool_delete(self.pool.as_ptr()) };
    }
}

impl<T, M> fmt::Debug for Pool<T, M> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Pool").field("live", &self.live()).finish_non_exhaustive()
    }
}

/// An object of a [`Pool`]. Dropping the box drops the value and puts the object back.
pub struct PoolBox<'p, T, M = Local> {
    object: NonNull<T>,
    pool: &'p Pool<T, M>,
}

// SAFETY: as Box<T>, if the pool accepts the object from any thread.
unsafe impl<T: Send> Send for PoolBox<'_, T, Shared> {}
// SAFETY: as Box<T>: a shared box gives access to the value only.
unsafe impl<T: Sync, M> Sync for PoolBox<'_, T, M> {}

impl<'p, T, M> PoolBox<'p, T, M> {
    /// # Safety
    /// `object` is null after a failure that set errno, or an object of the pool that is not in
    /// use.
    unsafe fn fill(object: *mut T, pool: &'p Pool<T, M>, value: T) -> Result<Self, Error> {
        let object = NonNull::new(object).ok_or_else(Error::last)?;
        // SAFETY: the object has room for a T.
        unsafe { object.write(value) };
        Ok(PoolBox { object, pool })
    }

    /// Returns the value and puts its object back.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// assert_eq!(pool.get(vec![1, 2])?.into_inner(), [1, 2]);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: the box is not dropped, and the value is read once, before its object is put
        // back.
        unsafe {
            let value = this.object.read();
            sys::cairn_sys_pool_put(this.pool.pool.as_ptr(), this.object.as_ptr().cast());
            value
        }
    }
}

impl<T, M> Deref for PoolBox<'_, T, M> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the object.
        unsafe { self.object.as_ref() }
    }
}

impl<T, M> DerefMut for PoolBox<'_, T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the object.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug, M> fmt::Debug for PoolBox<'_, T, M> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<T, M> Drop for PoolBox<'_, T, M> {
    fn drop(&mut self) {
        struct Place<'a, 'p, T, M>(&'a PoolBox<'p, T, M>);
        impl<T, M> Drop for Place<'_, '_, T, M> {
            fn drop(&mut self) {
                let (pool, object) = (self.0.pool.pool.as_ptr(), self.0.object.as_ptr());
                // SAFETY: the object is put back once, by one thread at a time or to a shared pool.
                unsafe { sys::cairn_sys_pool_put(pool, object.cast()) };
            }
        }
        let object = self.object;
        let _place = Place(self); // also when the value's drop panics
        // SAFETY: the box owns the value.
        unsafe { object.drop_in_place() };
    }
}

/// A thread's own store of objects of a shared [`Pool`].
#[derive(Debug)]
pub struct Magazine<'p, T> {
    magazine: NonNull<sys::cairn_pool_magazine>,
    pool: &'p Pool<T, Shared>,
}

// SAFETY: any thread may use a magazine, one at a time.
unsafe impl<T: Send> Send for Magazine<'_, T> {}

impl<'p, T> Magazine<'p, T> {
    /// Takes an object and moves the value to it. Dropping the box puts the object back to the
    /// pool; [`put`](Self::put) is faster.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<u64, cairn_alloc::Shared>::shared()?;
    /// assert_eq!(*pool.attach()?.get(5)?, 5);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; then the value is dropped.
    pub fn get(&mut self, value: T) -> Result<PoolBox<'p, T, Shared>, Error> {
        // SAFETY: only this thread borrows the magazine.
        let object = unsafe { sys::cairn_sys_pool_magazine_get(self.magazine.as_ptr()) };
        // SAFETY: the object belongs to this pool and is not in use.
        unsafe { PoolBox::fill(object.cast(), self.pool, value) }
    }

    /// Drops the value and keeps the object in this magazine.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<u64, cairn_alloc::Shared>::shared()?;
    /// let object = pool.get(1)?;
    /// pool.attach()?.put(object);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Panics
    /// When the object belongs to another pool.
    pub fn put(&mut self, object: PoolBox<'p, T, Shared>) {
        assert!(ptr::eq(object.pool, self.pool), "cairn: the object is another pool's");
        let place = mem::ManuallyDrop::new(object).object;
        // SAFETY: the box is not dropped, and its object is put back once. If the value's drop
        // panics, the object is lost.
        unsafe {
            place.drop_in_place();
            sys::cairn_sys_pool_magazine_put(self.magazine.as_ptr(), place.as_ptr().cast());
        }
    }
}

impl<T> Drop for Magazine<'_, T> {
    fn drop(&mut self) {
        // SAFETY: only this thread borrows the magazine, and does not use it afterwards.
        unsafe { sys::cairn_pool_detach(self.magazine.as_ptr()) };
    }
}
