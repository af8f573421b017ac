//! The sampler: at the end of each bin it reads counters and writes the trace.
//!
//! Differences of counters cost nothing per packet and are exact, because everything that happened
//! before the bin's end has been counted by then.

use gtp_alloc::{Bytes, Rate, Span};

use super::fabric::{Control, Fabric, Pipe};
use super::world::{Role, World};
use crate::trace::{BINS_MOST, LinkTrace, SessionTrace, Trace};

/// Counters when the last bin ended. What is added later began at zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    sessions: Vec<u64>,
    backgrounds: Vec<u64>,
    /// Drops and bytes carried.
    links: Vec<[u64; 2]>,
}

impl World {
    /// The counters now.
    pub(super) fn counters(&self) -> Seen {
        let sessions =
            self.sessions.iter().map(|session| match &self.ends[session.sink as usize].role {
                Role::Sink(sink) => sink.core.counters().bytes,
                Role::Peer(peer) => peer.received_bytes.0,
                Role::Waiting | Role::Source(_) | Role::Background(_) | Role::Talk => 0,
            });
        let backgrounds =
            self.backgrounds.iter().map(|flow| match &self.ends[flow.sink as usize].role {
                Role::Background(flow) => flow.bytes.0,
                Role::Waiting | Role::Source(_) | Role::Sink(_) | Role::Peer(_) | Role::Talk => 0,
            });
        let links = self.fabric.pipes.iter().map(|pipe| {
            let stats = pipe.link.stats();
            let refused = self.fabric.turned_away(pipe);
            [stats.drops.total().packets + refused, stats.carried.bytes.0]
        });
        Seen {
            sessions: sessions.collect(),
            backgrounds: backgrounds.collect(),
            links: links.collect(),
        }
    }

    /// Ends a bin.
    pub(super) fn sample(&mut self) {
        if self.trace.bins == BINS_MOST {
            return;
        }
        self.fabric.schedule.wake(self.sampler, self.now + self.trace.bin);
        let counters = self.counters();
        self.sample_sessions(&counters);
        let World { trace, fabric, seen, now, .. } = self;
        let bins = trace.bins;
        grow(&mut trace.backgrounds, counters.backgrounds.len(), || vec![Bytes::ZERO; bins]);
        for (i, &bytes) in counters.backgrounds.iter().enumerate() {
            trace.backgrounds[i].push(Bytes(bytes - before(&seen.backgrounds, i)));
        }
        grow(&mut trace.links, counters.links.len(), || LinkTrace::zeros(bins));
        for (i, &[drops, bytes]) in counters.links.iter().enumerate() {
            let [drops_before, bytes_before] = before(&seen.links, i);
            let series = &mut trace.links[i];
            let Fabric { pipes, managed, .. } = fabric;
            let Pipe { link, control, .. } = &mut pipes[i];
            let (queue, least) = match *control {
                Some(Control::Managed(place)) => {
                    let managed = &mut managed[place as usize];
                    (managed.bytes(), managed.take_least())
                }
                Some(Control::Gate(_)) | None => (link.queued(*now), link.take_least_queued(*now)),
            };
            series.queue.push(queue);
            series.queue_least.push(least);
            // A link that goes down takes back what it had counted as carried.
            series.drops.push(drops.saturating_sub(drops_before));
            series.carried.push(Bytes(bytes.saturating_sub(bytes_before)));
        }
        trace.bins += 1;
        self.seen = counters;
    }

    fn sample_sessions(&mut self, counters: &Seen) {
        let World { trace, seen, sessions, ends, .. } = self;
        let Trace { sessions: all, bins, .. } = trace;
        grow(all, sessions.len(), || SessionTrace::zeros(*bins));
        for (i, session) in sessions.iter().enumerate() {
            let series = &mut all[i];
            series.received.push(Bytes(counters.sessions[i] - before(&seen.sessions, i)));
            let (sending, rtt) = match &ends[session.source as usize].role {
                Role::Source(source) => (source.core.sending_rate(), source.core.rtt()),
                Role::Peer(peer) => (peer.progress().rate, peer.progress().rtt),
                Role::Waiting | Role::Sink(_) | Role::Background(_) | Role::Talk => {
                    (Rate::ZERO, Span::ZERO)
                }
            };
            let granted = match &ends[session.sink as usize].role {
                Role::Sink(sink) => sink.core.granted(),
                Role::Waiting
                | Role::Source(_)
                | Role::Background(_)
                | Role::Peer(_)
                | Role::Talk => Rate::ZERO,
            };
            series.sending.push(sending);
            series.rtt.push(rtt);
            series.granted.push(granted);
        }
    }
}

fn grow<T>(series: &mut Vec<T>, len: usize, empty: impl Fn() -> T) {
    series.resize_with(len, empty);
}

fn before<T: Copy + Default>(seen: &[T], i: usize) -> T {
    seen.get(i).copied().unwrap_or_default()
}

impl SessionTrace {
    fn zeros(bins: usize) -> SessionTrace {
        SessionTrace {
            received: vec![Bytes::ZERO; bins],
            granted: vec![Rate::ZERO; bins],
            sending: vec![Rate::ZERO; bins],
            rtt: vec![Span::ZERO; bins],
        }
    }
}

impl LinkTrace {
    fn zeros(bins: usize) -> LinkTrace {
        LinkTrace {
            queue: vec![Bytes::ZERO; bins],
            queue_least: vec![Bytes::ZERO; bins],
            drops: vec![0; bins],
            carried: vec![Bytes::ZERO; bins],
        }
    }
}
