//! Objects of one type, got and put back in any order: `cairn/pool.h`.

use crate::Error;
use cairn_sys as sys;
use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// Of a [`Pool`] that one thread uses at a time: no lock.
#[derive(Debug)]
pub enum Local {}

/// Of a [`Pool`] that any thread uses at any time: a lock, or a [`Magazine`] for each thread.
#[derive(Debug)]
pub enum Shared {}

/// A pool of `T`. Objects are given back when their [`PoolBox`] is dropped, and may not outlive the
/// pool:
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

// SAFETY: one thread at a time may use a pool, whichever it is; no object is out when it moves.
unsafe impl<T: Send, M> Send for Pool<T, M> {}
// SAFETY: a shared pool takes any thread at any time; through it values go from thread to thread.
unsafe impl<T: Send> Sync for Pool<T, Shared> {}

impl<T> Pool<T, Local> {
    /// A pool for one thread at a time.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<[u8; 40]>::new()?;
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; `EINVAL` for types above 64 MiB or aligned beyond 2 MiB.
    pub fn new() -> Result<Self, Error> {
        Self::make(0, false)
    }

    /// One with at most so many objects at a time.
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
    /// As [`new`](Self::new).
    pub fn with_limit(max_objects: usize) -> Result<Self, Error> {
        Self::make(max_objects, false)
    }
}

impl<T> Pool<T, Shared> {
    /// A pool for any thread at any time.
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
    /// As [`new`](Pool::new).
    pub fn shared() -> Result<Self, Error> {
        Self::make(0, true)
    }

    /// A thread's own store of objects: most gets and puts through it take no lock.
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
        // SAFETY: a shared pool.
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
        // SAFETY: the options are there, and the name for ever.
        let pool = unsafe {
            sys::cairn_pool_new(size_of::<T>().max(1), align_of::<T>(), &raw const options)
        };
        Ok(Pool { pool: NonNull::new(pool).ok_or_else(Error::last)?, of: PhantomData })
    }

    /// An object with this value.
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
    /// When memory or the limit is out; the value is dropped then.
    pub fn get(&self, value: T) -> Result<PoolBox<'_, T, M>, Error> {
        // SAFETY: one thread at a time, or a shared pool: Sync says which.
        let object = unsafe { sys::cairn_sys_pool_get(self.pool.as_ptr()) };
        // SAFETY: an object of this pool that nobody else has.
        unsafe { PoolBox::fill(object.cast(), self, value) }
    }

    /// Gives all memory without objects in use back to the system; how many bytes went.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// drop(pool.get([0u8; 1000])?);
    /// assert!(pool.trim() > 0);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn trim(&self) -> usize {
        // SAFETY: as in get.
        unsafe { sys::cairn_pool_trim(self.pool.as_ptr()) }
    }

    /// How many objects are in use, those in magazines included.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// let object = pool.get(1)?;
    /// assert_eq!(pool.live(), 1);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn live(&self) -> usize {
        // SAFETY: as in get; plain numbers and a pointer, which the call fills.
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
        // SAFETY: no box or magazine borrows it. One that was forgotten, never dropped, stays with
        // the pool: EBUSY then, and the pool is not freed.
        unsafe { sys::cairn_pool_delete(self.pool.as_ptr()) };
    }
}

impl<T, M> fmt::Debug for Pool<T, M> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Pool").field("live", &self.live()).finish_non_exhaustive()
    }
}

/// An object of a [`Pool`]; it is dropped and put back with this.
pub struct PoolBox<'p, T, M = Local> {
    object: NonNull<T>,
    pool: &'p Pool<T, M>,
}

// SAFETY: as Box<T>, where the pool takes it back from any thread.
unsafe impl<T: Send> Send for PoolBox<'_, T, Shared> {}
// SAFETY: as Box<T>: what is reached through a shared box is the value only.
unsafe impl<T: Sync, M> Sync for PoolBox<'_, T, M> {}

impl<'p, T, M> PoolBox<'p, T, M> {
    /// # Safety
    /// `object` is null, then errno says why, or an object of the pool that nobody else has.
    unsafe fn fill(object: *mut T, pool: &'p Pool<T, M>, value: T) -> Result<Self, Error> {
        let object = NonNull::new(object).ok_or_else(Error::last)?;
        // SAFETY: it has room for a T.
        unsafe { object.write(value) };
        Ok(PoolBox { object, pool })
    }

    /// The value; its place is put back.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::new()?;
    /// assert_eq!(pool.get(vec![1, 2])?.into_inner(), [1, 2]);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: the box is not dropped; the value is taken once, before its place goes.
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
                // SAFETY: put once; one thread at a time, or a shared pool.
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

// SAFETY: used by one thread at a time, whichever it is.
unsafe impl<T: Send> Send for Magazine<'_, T> {}

impl<'p, T> Magazine<'p, T> {
    /// An object with this value. Its drop puts it back to the pool; [`put`](Self::put) is faster.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<u64, cairn_alloc::Shared>::shared()?;
    /// assert_eq!(*pool.attach()?.get(5)?, 5);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory is out; the value is dropped then.
    pub fn get(&mut self, value: T) -> Result<PoolBox<'p, T, Shared>, Error> {
        // SAFETY: borrowed by this thread alone.
        let object = unsafe { sys::cairn_sys_pool_magazine_get(self.magazine.as_ptr()) };
        // SAFETY: an object of this pool that nobody else has.
        unsafe { PoolBox::fill(object.cast(), self.pool, value) }
    }

    /// Drops the value and keeps its place here.
    ///
    /// ```
    /// let pool = cairn_alloc::Pool::<u64, cairn_alloc::Shared>::shared()?;
    /// let object = pool.get(1)?;
    /// pool.attach()?.put(object);
    /// # Ok::<(), cairn_alloc::Error>(())
    /// ```
    ///
    /// # Panics
    /// When the object is another pool's.
    pub fn put(&mut self, object: PoolBox<'p, T, Shared>) {
        assert!(ptr::eq(object.pool, self.pool), "cairn: the object is another pool's");
        let place = mem::ManuallyDrop::new(object).object;
        // SAFETY: the box is not dropped; its place goes once. A drop that panics loses it.
        unsafe {
            place.drop_in_place();
            sys::cairn_sys_pool_magazine_put(self.magazine.as_ptr(), place.as_ptr().cast());
        }
    }
}

impl<T> Drop for Magazine<'_, T> {
    fn drop(&mut self) {
        // SAFETY: borrowed by this thread alone, and used no more.
        unsafe { sys::cairn_pool_detach(self.magazine.as_ptr()) };
    }
}
