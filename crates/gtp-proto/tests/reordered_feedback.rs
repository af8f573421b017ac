//! Feedback that a network reorders. Each receipt proves the same in whatever order it comes.

use gtp_alloc::{Rate, Span};
use gtp_link::LinkSpec;
use gtp_proto::Law;
use gtp_proto::wire::{Header, Kind};

mod world;

use world::{FlowSpec, Lie, Towards, World};

/// Reverses the order of every three feedbacks. Each is at most five control intervals late, so
/// that no lease ends meanwhile.
fn by_threes_from_the_end() -> Lie {
    let mut held: Vec<Vec<u8>> = Vec::new();
    let mut late: Vec<Vec<u8>> = Vec::new();
    Box::new(move |_, to, bytes| {
        let feedback = Header::decode(bytes).is_ok_and(|header| header.kind == Kind::Feedback);
        if to != Towards::Source || !feedback {
            return true;
        }
        held.push(core::mem::take(bytes));
        if held.len() == 3 {
            late = core::mem::take(&mut held);
        }
        late.pop().is_some_and(|next| {
            *bytes = next;
            true
        })
    })
}

#[test]
fn a_session_whose_feedback_is_reordered_keeps_its_rate() {
    for law in [Law::Grant, Law::EndNode { alpha: 0.1, beta: 0.2 }] {
        let mut world = World::new();
        let rate = Rate::from_mbps(100);
        let (source, sink) = (world.host(rate, rate, None), world.host(rate, rate, None));
        let queue = Rate::from_mbps(1_000).bytes_in(Span::from_millis(50));
        let delay = Span::from_millis(20);
        let wire = LinkSpec { rate: Rate::from_mbps(1_000), delay, queue, ..LinkSpec::default() };
        let (down, up) = (vec![world.link(wire.clone())], vec![world.link(wire)]);
        let max_rate = Rate::UNLIMITED;
        let spec = FlowSpec { source, sink, down, up, law, weight: 1.0, max_rate, units: 1 << 40 };
        let flow = world.flow(spec);
        world.run_for(Span::from_secs(5));
        world.flows[flow].lie = Some(by_threes_from_the_end());
        world.run_for(Span::from_secs(5));
        let kept = world.rate(flow, 6.0, 10.0) / 1e6;
        assert!(kept > 95.0, "{law:?}: {kept} Mbit/s");
        assert_eq!(world.flows[flow].source.counters().lost, 0, "{law:?}");
    }
}
