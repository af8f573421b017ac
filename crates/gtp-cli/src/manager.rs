//! What a service says to the system's manager: that it is ready, lives, reloads or stops, and how
//! it is doing.
//!
//! The manager is systemd, or another program that speaks its protocol (`NOTIFY_SOCKET`,
//! `WATCHDOG_USEC`); without one, nothing is said. If messages cannot be delivered, the log says so
//! once. Signs of life come from what serves: it is asked, and while it does not answer nothing is
//! said. The service knows what that is.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp::Time;
use gtp_sys::Clock;
use gtp_sys::clock::{duration, span};
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// The way to the manager. Clones lead to the same one.
#[derive(Clone)]
pub struct Manager {
    said: Arc<Mutex<Said>>,
}

struct Said {
    /// What was said last of how the service is doing.
    status: String,
    /// When the service will have ended, if it stops.
    ends: Option<Time>,
    clock: Clock,
    is_deaf: bool,
}

/// What serves, as far as a manager cares.
pub trait Serving {
    /// Waits until each part that serves has made a step since this was called. Returns how the
    /// service is doing; `None` if a part has ended.
    fn beat(&mut self) -> impl Future<Output = Option<String>> + Send;
}

impl Manager {
    /// The manager that started this process, if there is one.
    pub fn of_process() -> Manager {
        let clock = Clock::start();
        let said = Said { status: String::new(), ends: None, clock, is_deaf: false };
        Manager { said: Arc::new(Mutex::new(said)) }
    }

    /// The service can be reached, for the first time or again after a reload.
    pub fn ready(&self) {
        self.said().say(&[NotifyState::Ready]);
    }

    /// The service reads its configuration again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.said().say(&[NotifyState::Reloading, now]),
            Err(_) => self.said().say(&[NotifyState::Reloading]),
        }
    }

    /// The service stops, and will have ended within this time. The manager is asked for more time
    /// again and again, for as long as what serves goes on.
    pub fn stopping(&self, within: Duration) {
        let mut said = self.said();
        said.ends = Some(said.clock.now() + span(within));
        let more = said.time_to_stop();
        said.say(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(more)]);
    }

    /// Gives signs of life, and says how the service is doing, for as long as it goes on.
    pub async fn hear(self, mut serving: impl Serving) {
        let watchdog = sd_notify::watchdog_enabled();
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return;
        }
        let each = watchdog.map_or(LONGEST, |limit| (limit / 2).clamp(SHORTEST, LONGEST));
        let mut ticks = interval(each);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(status) = serving.beat().await else { return };
            self.said().lives(&status);
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn lives(&mut self, status: &str) {
        // A manager without a watchdog ignores this.
        self.say(&[NotifyState::Watchdog]);
        if self.ends.is_some() {
            let more = self.time_to_stop();
            self.say(&[NotifyState::ExtendTimeoutUsec(more)]);
        }
        if status != self.status {
            self.say(&[NotifyState::Status(status)]);
            self.status = status.to_owned();
        }
    }

    /// Microseconds until the next time that this is said, or the end.
    fn time_to_stop(&self) -> u32 {
        let left = self.ends.map_or(Duration::ZERO, |ends| duration(ends.since(self.clock.now())));
        let more = left.min(3 * LONGEST) + FAREWELL;
        u32::try_from(more.as_micros()).unwrap_or(u32::MAX)
    }

    fn say(&mut self, state: &[NotifyState]) {
        if let Err(error) = sd_notify::notify(state)
            && !std::mem::replace(&mut self.is_deaf, true)
        {
            tracing::warn!(%error, "the service manager cannot be reached");
        }
    }
}

/// A service's own time at its end: five seconds to tell its clients that it stops, five for the
/// last records of an audit, and two to spare.
const FAREWELL: Duration = Duration::from_secs(12);

/// Signs of life are given no more often.
const SHORTEST: Duration = Duration::from_millis(10);

/// Something is said at least so often.
const LONGEST: Duration = Duration::from_secs(5);
