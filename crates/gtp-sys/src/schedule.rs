//! A thread that must wake on time, on a machine that has other work.
//!
//! An instrument that waits behind what it measures measures itself. The kernel offers two ways
//! past the queue: real-time scheduling, which needs a privilege, and short time slices, which
//! need none: a thread that asks for little at a time is let in early.

use std::io;
use std::num::NonZeroU64;

/// How a thread is scheduled after [`punctual`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Punctuality {
    /// Before every ordinary thread.
    RealTime,
    /// Among them, but let in early.
    ShortSlices,
    /// As any other: the kernel refused both.
    Ordinary,
}

/// Makes the calling thread as punctual as the system allows. Threads and processes that it
/// starts afterwards are ordinary again. A real-time thread keeps others from its processor while
/// it runs: it must wait, and often.
pub fn punctual() -> Punctuality {
    // Timers of ordinary threads may fire up to 50 µs late unless told otherwise; where this is
    // refused they do.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let real_time = Attributes {
        policy: libc::SCHED_RR as u32,
        priority: LOWEST_REAL_TIME,
        ..Attributes::new()
    };
    if apply(&real_time).is_ok() { Punctuality::RealTime } else { short_slices() }
}

/// Makes the calling thread prompt without giving it any privilege: short time slices and sharp
/// timers. For threads that do real work and must not keep others out. The rank that a user gave
/// it stays, and whom a user put into another class than the ordinary ones is left there.
pub fn prompt() -> Punctuality {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    short_slices()
}

/// Gives the calling thread a lower priority than the process's other threads, for good: an
/// unprivileged thread cannot raise it again. Threads that it starts inherit it. A thread that is
/// already of a lower class, or that the system does not let change, stays as it is.
pub fn background() {
    let asked = Attributes::of_this_thread().and_then(|mut own| {
        if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(own.policy as libc::c_int)) {
            return Ok(());
        }
        own.policy = libc::SCHED_BATCH as u32;
        own.nice = (own.nice + BEHIND).min(LOWEST_RANK);
        apply(&own)
    });
    // Without it the thread competes with others as equals do.
    drop(asked);
}

fn short_slices() -> Punctuality {
    let asked = Attributes::of_this_thread().and_then(|mut own| {
        if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(own.policy as libc::c_int)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        own.runtime_ns = SHORTEST_SLICE_NS;
        own.flags |= RESET_ON_FORK;
        apply(&own)
    });
    if asked.is_ok() { Punctuality::ShortSlices } else { Punctuality::Ordinary }
}

/// The kernel's `struct sched_attr`, first version (linux/sched/types.h).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Attributes {
    /// An ordinary thread, whose children are ordinary.
    fn new() -> Attributes {
        Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: RESET_ON_FORK,
            nice: 0,
            priority: 0,
            runtime_ns: 0,
            deadline_ns: 0,
            period_ns: 0,
        }
    }

    /// What the calling thread has.
    fn of_this_thread() -> io::Result<Attributes> {
        let mut own = Attributes::new();
        let (this_thread, size, no_flags) = (0, own.size, 0);
        // SAFETY: the call writes `size` bytes at most to the pointer, which are the bytes of the
        // structure it points to; any bytes are such a structure, and it keeps no pointer.
        let answer = unsafe {
            let into = &raw mut own;
            libc::syscall(libc::SYS_sched_getattr, this_thread, into, size, no_flags)
        };
        if answer == 0 { Ok(own) } else { Err(io::Error::last_os_error()) }
    }
}

fn apply(attributes: &Attributes) -> io::Result<()> {
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the call reads `attributes.size` bytes from the pointer, which are the bytes of the
    // structure it points to; it writes nothing and keeps no pointer.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, attributes, no_flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Real-time threads among themselves are none of our business: the lowest is enough.
const LOWEST_REAL_TIME: u32 = 1;
/// By how much a background thread is nicer: it gets a tenth of an ordinary thread's share of a
/// processor (sched(7)). With less it would stand still on a machine that has other work.
const BEHIND: i32 = 10;
/// The highest nice value.
const LOWEST_RANK: i32 = 19;
/// The kernel's least.
const SHORTEST_SLICE_NS: u64 = 100_000;
/// `SCHED_FLAG_RESET_ON_FORK` (linux/sched.h).
const RESET_ON_FORK: u64 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_ask_for_punctuality_with_any_privilege() {
        let got = std::thread::spawn(punctual).join().expect("the thread ends");
        // Which one depends on the machine; that the kernel knows the request does not.
        assert_ne!(got, Punctuality::Ordinary);
    }

    #[test]
    fn a_background_thread_ranks_behind_the_others_and_they_stay_as_they_are() {
        let before = Attributes::of_this_thread().expect("the kernel knows the request");
        let thread = std::thread::spawn(|| {
            background();
            let own = Attributes::of_this_thread().expect("the kernel knows the request");
            (own.policy as libc::c_int, own.nice)
        });
        let expected = (libc::SCHED_BATCH, (before.nice + 10).min(19));
        assert_eq!(thread.join().expect("the thread ends"), expected);
        let after = Attributes::of_this_thread().expect("the kernel knows the request");
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
    }

    /// A thread becomes prompt after it was given this policy and rank; those that it has then.
    fn prompt_after(policy: libc::c_int, nice: i32) -> (Punctuality, u32, i32) {
        let thread = std::thread::spawn(move || {
            apply(&Attributes { policy: policy as u32, nice, flags: 0, ..Attributes::new() })
                .expect("a lower rank needs no privilege");
            let got = prompt();
            let now = Attributes::of_this_thread().expect("the kernel knows the request");
            (got, now.policy, now.nice)
        });
        thread.join().expect("the thread ends")
    }

    #[test]
    fn a_prompt_thread_keeps_the_rank_and_the_class_that_a_user_gave_it() {
        for policy in [libc::SCHED_OTHER, libc::SCHED_BATCH] {
            let expected = (Punctuality::ShortSlices, policy as u32, 7);
            assert_eq!(prompt_after(policy, 7), expected);
        }
        let (got, policy, _) = prompt_after(libc::SCHED_IDLE, 0);
        assert_eq!((got, policy), (Punctuality::Ordinary, libc::SCHED_IDLE as u32));
    }
}
