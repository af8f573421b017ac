//! Waiting: for readiness, for a time, or for a word from another thread; never oftener than once
//! per tick.
//!
//! The tick is what makes high rates cheap: at 1 Gbit/s packets fall due every 12 µs, and one
//! round of work per packet would cost more than the packets do. What falls due within a tick
//! leaves together, late by less than a tick, and the lateness is measured and stated.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gtp_alloc::{Span, Time};
use gtp_sys::Clock;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

pub(crate) use rustix::event::epoll::EventFlags;

/// Wakes a [`Poller`] from another thread.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current or the next wait.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then the poller is awake already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// See the module's head.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    waker: Waker,
    clock: Clock,
    tick: Span,
    last_round: Time,
    ready: Vec<epoll::Event>,
}

impl Poller {
    /// A poller.
    pub(crate) fn new(tick: Span) -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let waker = Waker(Arc::new(event));
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(IGNORED), edge)?;
        epoll::add(&epoll, &*waker.0, epoll::EventData::new_u64(IGNORED), edge)?;
        Ok(Poller {
            epoll,
            timer,
            waker,
            clock: Clock::start(),
            tick,
            last_round: Time::ZERO,
            ready: Vec::with_capacity(MAX_EVENTS),
        })
    }

    /// A poller that can watch nothing more, as if the kernel had no memory for it.
    #[cfg(test)]
    pub(crate) fn exhausted() -> io::Result<Poller> {
        let no_epoll = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Poller { epoll: no_epoll, ..Poller::new(Span::ZERO)? })
    }

    /// A waker of this poller.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches a descriptor.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits until a descriptor is ready, `until` has come or the waker was used; at least until a
    /// tick after the last wait ended. Returns what is ready.
    pub(crate) fn wait(&mut self, until: Option<Time>) -> io::Result<Vec<(u64, EventFlags)>> {
        let now = self.clock.now();
        let rest = (self.last_round + self.tick).since(now);
        if rest > Span::ZERO {
            std::thread::sleep(gtp_sys::clock::duration(rest));
        }
        let now = self.clock.now();
        let due = until.is_some_and(|until| until <= now);
        match until {
            Some(until) if !due => self.arm(until.since(now))?,
            Some(_) | None => {}
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.ready.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, spare, due.then_some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        self.last_round = self.clock.now();
        let ready = self.ready.iter().map(|event| (event.data.u64(), event.flags));
        Ok(ready.filter(|(token, _)| *token != IGNORED).collect())
    }

    fn arm(&self, after: Span) -> io::Result<()> {
        let it_value = Timespec {
            tv_sec: (after.as_nanos() / 1_000_000_000).min(MAX_SLEEP_S) as i64,
            tv_nsec: (after.as_nanos() % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

/// The token of what only ends the wait.
const IGNORED: u64 = u64::MAX;
/// Ready descriptors taken per round; the others come in the next.
const MAX_EVENTS: usize = 256;
/// A wait may end early, so that an absurd time needs no special care.
const MAX_SLEEP_S: u64 = 3_600;
