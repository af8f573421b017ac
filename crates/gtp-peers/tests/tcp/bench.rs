//! Dumbbells with TCP flows on them.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_peers::tcp::{AckDelay, Flavour, Receiver, ReceiverConfig, Sender, SenderConfig};

use gtp_path::{START, World, bottleneck, wire};

/// A bottleneck with flows over it, all of one round-trip time.
pub struct Dumbbell {
    pub world: World,
    pub there: usize,
    pub back: usize,
}

impl Dumbbell {
    pub fn new(rate: Rate, rtt: Span, queue: Bytes) -> Dumbbell {
        let mut world = World::new();
        let there = world.link(bottleneck(rate, rtt / 2, queue));
        let back = world.link(wire(rtt / 2));
        Dumbbell { world, there, back }
    }

    pub fn flow(&mut self, flavour: Flavour, config: SenderConfig, after: Span) -> usize {
        let receiver = ReceiverConfig { delay: AckDelay::None, ..ReceiverConfig::default() };
        self.flow_to(flavour, config, receiver, after)
    }

    pub fn flow_to(
        &mut self,
        flavour: Flavour,
        config: SenderConfig,
        receiver: ReceiverConfig,
        after: Span,
    ) -> usize {
        let sender = flavour.sender(START + after, config, 1);
        let receiver = flavour.receiver(receiver);
        self.world.flow(after, Box::new(sender), Box::new(receiver), &[self.there], &[self.back])
    }

    pub fn sender(&self, flow: usize) -> &Sender {
        self.world.sender::<Sender>(flow)
    }

    pub fn receiver(&self, flow: usize) -> &Receiver {
        self.world.receiver::<Receiver>(flow)
    }
}
