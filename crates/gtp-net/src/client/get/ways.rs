//! By which way each source's data come: by UDP, or over its control connection.
//!
//! The engine moves a session from one way to the other and back; here is decided whether it may
//! have the other one, and the user is told what it uses. Nothing is connected or asked here.

use gtp_proto::FlowId;

use super::{Gather, Order, State};

impl Gather {
    /// No datagram has come on a session for some time. If its control connection may carry them,
    /// the server is asked whether it is UDP that fails.
    pub(super) fn silent(&mut self, flow: FlowId) {
        let Some(number) = self.live_source(flow) else { return };
        if !self.may_carry(number) {
            return;
        }
        let source = &mut self.sources[number];
        if let State::Live { orders, .. } = &source.state
            && source.inquiry.wait(self.clock.now())
        {
            // A line that has just ended reports so itself.
            let _ = orders.send(Order::AskArrivals);
        }
    }

    /// Has the control connection carry a session's datagrams, if it may.
    pub(super) fn carry(&mut self, flow: FlowId) {
        let (Some(number), Some(running)) = (self.live_source(flow), &self.running) else { return };
        let source = &self.sources[number];
        if let (State::Live { orders, .. }, Some(peer)) = (&source.state, source.peer)
            && self.may_carry(number)
        {
            // A line that has just ended reports so itself.
            let _ = orders.send(Order::Carry(running.transfer.carrier(flow, peer)));
            self.sources[number].is_carried = true;
        }
    }

    /// Whether a source's control connection may carry datagrams. One that carries them already is
    /// not asked again.
    fn may_carry(&self, number: usize) -> bool {
        let source = &self.sources[number];
        let (host, udp) = (source.url.host(), self.terms.udp);
        let may = self.endpoint.may_carry(host, source.revision, udp, source.path_seen);
        may && !source.is_carried
    }

    /// Tells by which way data come, where that has changed.
    pub(super) fn tell_ways(&mut self) {
        let shares = self.tally.progress().sources.iter();
        for (source, share) in self.sources.iter_mut().zip(shares) {
            if !source.path_seen || share.way == source.way {
                continue;
            }
            source.way = share.way;
            let told = self.endpoint.way_changed(&source.url, share.way, self.terms.udp);
            self.monitor.tell(told);
        }
    }
}
