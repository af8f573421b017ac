//! Objects that several sources bring to one sink: how long that takes, and what happens when a
//! source ends, stands still or is slow.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_sim::packet::{
    Action, BuildError, HostSpec, NodeId, SessionId, SessionSpec, Standing, Volume, World,
};

const fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

const SIZE: Bytes = Bytes(20_000_000);

/// A sink and sources with these capacities in Mbit/s, each with its delay in ms.
struct Net {
    world: World,
    sources: Vec<NodeId>,
    sessions: Vec<SessionId>,
}

impl Net {
    fn new(sink_mbps: u64, sources: &[(u64, u64)]) -> Net {
        let mut world = World::new(3);
        let host = |out, in_| HostSpec {
            out: Rate::from_mbps(out),
            in_: Rate::from_mbps(in_),
            ..HostSpec::default()
        };
        let sink = world.add_host(host(1_000, sink_mbps));
        let (mut nodes, mut sessions) = (Vec::new(), Vec::new());
        for &(rate, delay) in sources {
            let source = world.add_host(host(rate, 1_000));
            let link = LinkSpec {
                rate: Rate::from_mbps(1_000),
                delay: Span::from_millis(delay),
                queue: Bytes(1 << 20),
                ..LinkSpec::default()
            };
            world.connect_both(source, sink, link).unwrap();
            let volume = Volume::Bytes(SIZE);
            let spec = SessionSpec { volume, ..SessionSpec::new(source, sink) };
            sessions.push(world.add_session(spec).unwrap());
            nodes.push(source);
        }
        world.add_group(&sessions).unwrap();
        Net { world, sources: nodes, sessions }
    }

    /// What each session has brought once all have ended, and when they had, in seconds.
    fn ended(&mut self) -> (Vec<u64>, f64) {
        self.world.run_until(ms(60_000));
        let all = self.sessions.iter().map(|&id| self.world.session(id).unwrap());
        let all: Vec<_> = all.collect();
        let ended = all.iter().filter_map(|status| status.ended).max().unwrap();
        let brought = all.iter().map(|status| status.payload.0).collect();
        (brought, ended.since(Time::ZERO).as_nanos() as f64 / 1e9)
    }

    fn all_done(&self) -> bool {
        let standing = |&id| self.world.session(id).map(|status| status.standing);
        self.sessions.iter().all(|id| standing(id) == Some(Standing::Done))
    }
}

/// Seconds that the object takes at so many Mbit/s together, heads included.
fn least(mbps: f64) -> f64 {
    SIZE.0 as f64 * 8.0 / 1e6 / mbps * 1_477.0 / 1_400.0
}

#[test]
fn sources_of_different_rates_end_together_and_bring_each_unit_once() {
    let mut net = Net::new(1_000, &[(10, 1), (30, 20), (60, 60)]);
    let (brought, seconds) = net.ended();
    assert!(net.all_done());
    assert_eq!(brought.iter().sum::<u64>(), SIZE.0, "{brought:?}");
    assert!(seconds < 1.1 * least(100.0) + 0.5, "{seconds} s instead of {}", least(100.0));
    for (brought, rate) in brought.iter().zip([10.0, 30.0, 60.0]) {
        let part = *brought as f64 / SIZE.0 as f64;
        // Who is farther away begins later.
        assert!((part - rate / 100.0).abs() < 0.1, "{part} of it at {rate} Mbit/s");
    }
}

#[test]
fn a_sink_that_is_the_bottleneck_is_shared_by_the_sources() {
    let mut net = Net::new(40, &[(100, 5), (100, 5), (100, 5), (5, 5)]);
    let (brought, seconds) = net.ended();
    assert!(net.all_done());
    assert_eq!(brought.iter().sum::<u64>(), SIZE.0, "{brought:?}");
    assert!(seconds < 1.1 * least(40.0) + 0.5, "{seconds} s instead of {}", least(40.0));
}

#[test]
fn what_a_source_that_ends_did_not_bring_comes_from_the_others() {
    let mut net = Net::new(1_000, &[(30, 5), (30, 5), (30, 5)]);
    net.world.at(ms(800), Action::Stop(net.sessions[1])).unwrap();
    let (brought, seconds) = net.ended();
    let standing = |at: usize| net.world.session(net.sessions[at]).unwrap().standing;
    assert_eq!(
        [standing(0), standing(1), standing(2)],
        [Standing::Done, Standing::Stopped, Standing::Done]
    );
    assert_eq!(brought.iter().sum::<u64>(), SIZE.0, "{brought:?}");
    assert!(seconds < 1.1 * least(60.0) + 0.5, "{seconds} s");
}

#[test]
fn a_source_that_stands_still_keeps_the_others_waiting_for_less_than_its_patience() {
    let mut net = Net::new(1_000, &[(30, 5), (30, 5)]);
    net.world.at(ms(1_000), Action::Pause(net.sources[0], Span::from_secs(40))).unwrap();
    let (brought, seconds) = net.ended();
    assert!(net.all_done());
    assert_eq!(brought.iter().sum::<u64>(), SIZE.0, "{brought:?}");
    assert!(seconds < 1.1 * least(30.0) + 3.0, "{seconds} s instead of {}", least(30.0));
}

#[test]
fn a_source_that_comes_when_all_is_there_ends_at_once() {
    let mut net = Net::new(1_000, &[(100, 5)]);
    let volume = Volume::Bytes(Bytes(1_000_000));
    let (source, sink) = (net.sources[0], NodeId(0));
    let [early, late] = [0, 2_000].map(|start| {
        let spec = SessionSpec { volume, start: ms(start), ..SessionSpec::new(source, sink) };
        net.world.add_session(spec).unwrap()
    });
    net.world.add_group(&[early, late]).unwrap();
    net.world.run_until(ms(5_000));
    let [early, late] = [early, late].map(|id| net.world.session(id).unwrap());
    assert_eq!((early.standing, late.standing), (Standing::Done, Standing::Done));
    assert_eq!((early.payload, late.payload), (Bytes(1_000_000), Bytes(0)));
    assert!(late.ended.is_some_and(|at| at < ms(2_100)), "{:?}", late.ended);
}

#[test]
fn sessions_that_are_not_of_one_object_are_no_group() {
    let mut net = Net::new(100, &[(30, 5), (30, 5)]);
    let endless = SessionSpec::new(net.sources[0], NodeId(0));
    let other = SessionSpec { volume: Volume::Bytes(Bytes(5)), ..endless.clone() };
    let endless = net.world.add_session(endless).unwrap();
    let other = net.world.add_session(other).unwrap();
    let refused = |world: &mut World, members: &[SessionId]| {
        matches!(world.add_group(members), Err(BuildError::OutOfRange(_)))
    };
    assert!(refused(&mut net.world, &[]));
    assert!(refused(&mut net.world, &[endless]));
    assert!(refused(&mut net.world, &[other, net.sessions[0]]));
    assert!(refused(&mut net.world, &[net.sessions[0]]), "it is of a group already");
    assert!(net.world.add_group(&[SessionId(99)]).is_err());
    assert!(net.world.add_group(&[other]).is_ok());
}
