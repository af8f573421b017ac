//! Says whether a server goes on. A supervisor asks each part that serves clients; a part that
//! hangs does not answer.
//!
//! The loop that takes clients answers between two of its steps, and each engine's thread in its
//! next turn. An answer from anywhere else would say nothing about them.

use tokio::sync::{mpsc, oneshot};

use crate::engine::Host;

/// Asks a server whether it goes on. Clones ask the same server.
#[derive(Clone)]
pub struct Pulse {
    accepting: Asker,
    host: Host,
}

/// Asks a loop whether it goes on.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<oneshot::Sender<()>>);

/// Where a loop is asked whether it goes on.
#[derive(Debug)]
pub struct Asked(mpsc::Receiver<oneshot::Sender<()>>);

/// Both ends, for a server on this host: the second one is the loop's that takes clients.
pub(super) fn of_host(host: &Host) -> (Pulse, Asked) {
    let (accepting, asked) = questions();
    (Pulse { accepting, host: host.clone() }, asked)
}

/// Both ends of the questions whether a loop goes on.
#[must_use]
pub fn questions() -> (Asker, Asked) {
    let (asks, asked) = mpsc::channel(1);
    (Asker(asks), Asked(asked))
}

impl Pulse {
    /// Waits until the loop that takes clients and every engine have made a step since this was
    /// called; for ever if one of them hangs. Returns whether they have: what has ended cannot.
    /// Safe to cancel.
    pub async fn beat(&self) -> bool {
        self.accepting.ask().await && self.host.turn_over().await
    }
}

impl Asker {
    /// Waits until the loop has answered, which it does between two of its steps; for ever if it
    /// hangs. Returns whether it has: a loop that has ended cannot. Safe to cancel.
    pub async fn ask(&self) -> bool {
        let (answer_in, answer) = oneshot::channel();
        self.0.send(answer_in).await.is_ok() && answer.await.is_ok()
    }
}

impl std::fmt::Debug for Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}

impl Asked {
    /// Waits for the next question, and answers it. Safe to cancel.
    pub async fn answer(&mut self) {
        match self.0.recv().await {
            // The task that asked may have ended.
            Some(answer) => drop(answer.send(())),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use gtp_alloc::{Bytes, Rate};

    use super::*;
    use crate::engine::HostConfig;

    fn host() -> Host {
        let (capacity_out, capacity_in) = (Rate::UNLIMITED, Rate::UNLIMITED);
        let memory = Bytes(1 << 20);
        let config = HostConfig { capacity_out, capacity_in, interval: None, memory, engines: 2 };
        Host::start(config).unwrap()
    }

    #[tokio::test]
    async fn a_server_whose_accepting_loop_makes_no_step_has_no_pulse_until_it_makes_one() {
        let (pulse, mut beats) = of_host(&host());
        let mut beat = Box::pin(pulse.beat());
        let polled = std::future::poll_fn(|context| Poll::Ready(beat.as_mut().poll(context)));
        assert!(polled.await.is_pending());
        let (alive, ()) = tokio::join!(beat, beats.answer());
        assert!(alive);
        drop(beats);
        assert!(!pulse.beat().await, "a loop that has ended goes on");
    }
}
