/* The supply of borrowed blocks, which its owner and other threads use: borrow_fill, borrow_take and
 * borrow_return_class of src/heap/borrow.c.
 *
 * Thread 0 owns a supply with room for one block. It borrows the block of thread 2's slab, hands it
 * out and frees it. Thread 1 gives the block back to the slab. Thread 2 collects the block, uses it,
 * and another thread's free of it follows. The slab is in its mailbox, MAIL, or not.
 *
 * Asserted: the block has one user at a time, each use happens before the next, and so do the
 * accesses to the supply; at the end the block is in the supply or in a slab that is posted.
 */
#define THREADS 3
#ifndef TURNS
#define TURNS 2
#endif
#ifndef WRITES
#define WRITES 16
#endif

#define LOCK 0
#define COUNT 1
#define LINK 2
#define MAIL 3
#define DRAINS 4
#define ATOMICS 5
#define SUPPLY 0
#define PLAINS 1
#define CELLS 1

#include "memory.pml"

#ifdef MUTANT_LOCK_RELAXED
#define LOCK_ORDER RELAXED
#else
#define LOCK_ORDER ACQ_REL
#endif
#ifdef MUTANT_UNLOCK_RELAXED
#define UNLOCK_ORDER RELAXED
#else
#define UNLOCK_ORDER RELEASE
#endif

/* MAIL: the slab is open, in its mailbox, or QUEUED and taken out by the borrower. */
#define OPEN 0
#define POSTED 1
#define TAKEN_OUT 2

#define LIVE 0
#define REMOTE 1
#define BORROWED 2

bool in_use;
byte done;

/* borrow_try_lock; `has` says whether it succeeded */
inline try_lock(me)
{
#ifdef MUTANT_NO_LOCK
    has = true;
#else
    compare_swap(me, LOCK, LOCK_ORDER, 0, 1, word);
    has = word == 0;
#endif
}

inline unlock(me)
{
#ifdef MUTANT_NO_LOCK
    skip
#else
    store(me, LOCK, UNLOCK_ORDER, 0)
#endif
}

/* Writes the block, then frees it as a thread that does not own the slab. */
inline use_block(me)
{
    atomic {
        assert(!in_use);
        alone(me, 0);
        in_use = true
    }
    in_use = false;
    compare_swap(me, LINK, SEQ_CST, LIVE, REMOTE, word);
    assert(word == LIVE);
    compare_swap(me, MAIL, SEQ_CST, OPEN, POSTED, word) /* remote_post */
}

/* borrow_pop; `has` says whether the supply had a block */
inline pop(me)
{
#ifdef MUTANT_COUNT_ONCE
    word = 1;
#else
    load(me, COUNT, RELAXED, word);
#endif
    has = word == 1;
    if
    :: has ->
        exclusive(me, SUPPLY);
        store(me, COUNT, RELAXED, 0)
    :: else
    fi
}

proctype borrower(byte me)
{
    short word, drains;
    bool has;
    byte turns = TURNS;
    do
    :: turns > 0 -> /* borrow_fill */
        turns--;
        try_lock(me);
        if
        :: has ->
            compare_swap(me, MAIL, SEQ_CST, POSTED, TAKEN_OUT, word);
            has = word == POSTED;
            load(me, COUNT, RELAXED, word);
            drains = 1;
            if
            :: has && word == 0 -> load(me, DRAINS, ACQUIRE, drains)
            :: else
            fi;
            if
            :: drains == 0 ->
                compare_swap(me, LINK, SEQ_CST, REMOTE, BORROWED, word);
                if
                :: word == REMOTE ->
                    exclusive(me, SUPPLY);
                    store(me, COUNT, RELAXED, 1)
                :: else
                fi
            :: else
            fi;
            if
            :: has -> modify(me, MAIL, SEQ_CST, word, POSTED) /* remote_push_mail */
            :: else
            fi;
            unlock(me)
        :: else
        fi;
        word = 0;
        drains = 0;
        has = false
    :: turns > 0 -> /* borrow_take */
        turns--;
        load(me, COUNT, RELAXED, word);
        if
        :: word == 1 ->
            try_lock(me);
            if
            :: has ->
                pop(me);
                if
                :: has -> store(me, LINK, RELAXED, LIVE)
                :: else
                fi;
                unlock(me);
                if
                :: has -> use_block(me)
                :: else
                fi
            :: else
            fi
        :: else
        fi;
        word = 0;
        has = false
    :: turns == 0 -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

/* borrow_return_class */
proctype returner(byte me)
{
    short word;
    bool has;
    byte turns = TURNS;
    do
    :: turns > 0 ->
        turns--;
        load(me, COUNT, RELAXED, word);
        if
        :: word == 1 ->
            try_lock(me);
            if
            :: has ->
                pop(me);
                if
                :: has ->
                    store(me, LINK, SEQ_CST, REMOTE);
#ifndef MUTANT_NO_POST
                    compare_swap(me, MAIL, SEQ_CST, OPEN, POSTED, word)
#endif
                :: else
                fi;
                unlock(me)
            :: else
            fi
        :: else
        fi;
        word = 0;
        has = false
    :: turns == 0 -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

/* mailbox_drain, and the next user of the block */
proctype slab_owner(byte me)
{
    short word;
    bool has;
    byte turns = TURNS;
    do
    :: turns > 0 ->
        turns--;
        store(me, DRAINS, RELAXED, 1);
        compare_swap(me, MAIL, SEQ_CST, POSTED, OPEN, word);
        if
        :: word == POSTED ->
            load(me, LINK, SEQ_CST, word);
            has = word == REMOTE;
            if
            :: has -> store(me, LINK, RELAXED, LIVE)
            :: else
            fi
        :: else
        fi;
        store(me, DRAINS, RELEASE, 0);
        if
        :: has -> use_block(me)
        :: else
        fi;
        word = 0;
        has = false
    :: turns == 0 -> break
    od;
    atomic {
        leave(me);
        done++
    }
}

init {
    atomic {
        begin();
        initially(LOCK, 0);
        initially(COUNT, 0);
        initially(LINK, REMOTE);
        initially(MAIL, POSTED);
        initially(DRAINS, 0);
        run borrower(0);
        run returner(1);
        run slab_owner(2)
    }
    done == THREADS;
    assert(newest(LINK) != LIVE && newest(LOCK) == 0);
    assert((newest(LINK) == BORROWED) == (newest(COUNT) == 1));
    assert(newest(LINK) == BORROWED || newest(MAIL) == POSTED)
}
