//! The senders of router-assisted rivals, acknowledgment by acknowledgment.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_peers::aecp::{self, Factor, Gains};
use gtp_peers::tcp::{
    AckDelay, AckView, Fullness, Law, Leaving, LossView, Opening, Phase, Receiver, ReceiverConfig,
    Sender, SenderConfig, Window,
};
use gtp_peers::vcp::{self, Load};
use gtp_peers::xcp::{self, Request};
use gtp_peers::{Endpoint, Note, Packet, Routed};

const RTT: Span = Span::from_millis(50);

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn window(size: f64) -> Window {
    Window { size, ..Window::new(1.0, f64::INFINITY, f64::INFINITY) }
}

/// An acknowledgment of one full packet.
fn ack(ms: u64, fullness: Fullness) -> AckView {
    AckView {
        now: at(ms),
        phase: Phase::Open,
        credit: 1.0,
        acked: 1,
        arrived: 1,
        lost: 0,
        rtt: Some(RTT),
        smoothed_rtt: RTT,
        least_rtt: RTT,
        pipe_before: 20,
        pipe: 19,
        first: 100,
        next: 120,
        fullness,
        delivered: 100,
        delivery: None,
    }
}

fn leaving(size: f64, rtt: Span) -> Leaving {
    Leaving {
        now: at(0),
        window: window(size),
        smoothed_rtt: rtt,
        size: Bytes(1_000),
        fullness: Fullness::Full,
        duplicates: 0,
    }
}

fn loss(size: f64) -> LossView {
    LossView { now: at(0), window: size, pipe: size as u64, next: 120, delivered: 100 }
}

/// Lets the law read `note` on an acknowledgment.
fn take(law: &mut dyn Law, note: Note, view: &AckView, window: &mut Window) {
    law.handle_note(view.now, &note, window);
    law.observe(view, window);
}

fn feedback(delta: f64) -> Note {
    Note::Xcp(Request { rtt: RTT, throughput: Rate::from_mbps(1), delta })
}

#[test]
fn xcp_says_its_windows_throughput_and_changes_it_by_what_comes_back() {
    let mut law = xcp::Law::new();
    let Note::Xcp(said) = law.stamp(&leaving(20.0, RTT)) else { panic!("an XCP note") };
    // 20 packets of 8,000 bits in 50 ms.
    assert_eq!((said.throughput, said.rtt), (Rate::from_bps(3_200_000), RTT));
    let mut now = window(20.0);
    // 160 kbit/s for 50 ms are one packet.
    take(&mut law, feedback(160_000.0), &ack(50, Fullness::Full), &mut now);
    assert!((now.size - 21.0).abs() < 1e-9);
    take(&mut law, feedback(-320_000.0), &ack(51, Fullness::Slack), &mut now);
    assert!((now.size - 19.0).abs() < 1e-9);
    take(&mut law, feedback(-1e12), &ack(52, Fullness::Full), &mut now);
    assert_eq!(now.size, 1.0);
}

#[test]
fn xcp_without_a_round_trip_time_asks_for_nothing() {
    let mut law = xcp::Law::new();
    assert_eq!(law.stamp(&leaving(1.0, Span::ZERO)), Note::Xcp(Request::default()));
}

#[test]
fn xcp_as_in_ns_2_says_its_inflated_window_over_a_round_trip_time_of_its_own() {
    let duplicates = 5;
    let inflated = Leaving { duplicates, ..leaving(20.5, RTT * 2) };
    let throughput = |law: &mut xcp::Law| match law.stamp(&inflated) {
        Note::Xcp(said) => said.throughput,
        other => panic!("an XCP note and not {other:?}"),
    };
    // 20.5 packets of 8,000 bits in 100 ms.
    assert_eq!(throughput(&mut xcp::Law::new()), Rate::from_bps(1_640_000));
    // 20 and 5 duplicates in the 50 ms that one acknowledgment measured.
    let mut law = xcp::Law::as_in_ns2(Bytes(960));
    assert_eq!(throughput(&mut law), Rate::ZERO, "nothing is measured yet");
    let mut now = window(20.5);
    take(&mut law, Note::None, &ack(50, Fullness::Full), &mut now);
    assert_eq!(throughput(&mut law), Rate::from_bps(4_000_000));
    // 76,800 bit/s more are half a packet of 960 bytes in 50 ms.
    take(&mut law, feedback(76_800.0), &ack(100, Fullness::Full), &mut now);
    assert_eq!(now.size, 21.0);
    // An eighth of a longer round trip.
    let longer = AckView { rtt: Some(RTT * 9), ..ack(150, Fullness::Full) };
    take(&mut law, Note::None, &longer, &mut now);
    let Note::Xcp(said) = law.stamp(&inflated) else { panic!("an XCP note") };
    assert_eq!(said.rtt, RTT * 2);
}

#[test]
fn xcp_does_not_save_up_what_its_application_cannot_use() {
    let mut law = xcp::Law::new();
    law.stamp(&leaving(40.0, RTT));
    let mut now = window(40.0);
    take(&mut law, feedback(160_000.0), &ack(50, Fullness::Slack), &mut now);
    assert_eq!(now.size, 40.0);
    // At most 20 were out in this round.
    law.handle_round(&ack(50, Fullness::Slack), &mut now);
    assert_eq!(now.size, 21.0);
}

#[test]
fn xcp_takes_no_nonsense_from_the_way() {
    let mut law = xcp::Law::new();
    law.stamp(&leaving(20.0, RTT));
    let mut now = window(20.0);
    for delta in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        take(&mut law, feedback(delta), &ack(50, Fullness::Full), &mut now);
    }
    take(&mut law, Note::Vcp(Load::Low), &ack(50, Fullness::Full), &mut now);
    assert_eq!(now.size, 20.0);
}

#[test]
fn xcp_halves_on_loss_as_reno_does() {
    let mut law = xcp::Law::new();
    let mut now = window(20.0);
    law.handle_loss(&loss(20.0), &mut now);
    assert_eq!(now.size, 10.0);
}

#[test]
fn vcp_cuts_once_waits_200_milliseconds_and_adds_for_a_round_trip_time() {
    let mut law = vcp::Law::new();
    let mut now = window(100.0);
    let mut over = |law: &mut vcp::Law, ms| {
        take(law, Note::Vcp(Load::Over), &ack(ms, Fullness::Full), &mut now);
        now.size
    };
    assert_eq!(over(&mut law, 0), 87.5);
    assert_eq!(over(&mut law, 199), 87.5);
    // A quarter of a packet in a round trip of 50 ms.
    let added = 87.5 + 0.25 / 87.5;
    assert!((over(&mut law, 200) - added).abs() < 1e-12);
    assert!((over(&mut law, 250) - 0.875 * added).abs() < 1e-12);
}

#[test]
fn vcp_multiplies_at_low_load_and_adds_at_high_load_if_its_window_is_in_use() {
    let mut law = vcp::Law::new();
    let mut now = window(100.0);
    take(&mut law, Note::Vcp(Load::Low), &ack(0, Fullness::Full), &mut now);
    assert!((now.size - (100.0 + 1.0625_f64.powf(0.25) - 1.0)).abs() < 1e-12);
    now = window(100.0);
    take(&mut law, Note::Vcp(Load::High), &ack(1, Fullness::Full), &mut now);
    assert!((now.size - (100.0 + 0.25 / 100.0)).abs() < 1e-12);
    now = window(100.0);
    take(&mut law, Note::Vcp(Load::Low), &ack(2, Fullness::Slack), &mut now);
    assert_eq!(now.size, 100.0);
    take(&mut law, Note::Vcp(Load::Over), &ack(3, Fullness::Slack), &mut now);
    assert_eq!(now.size, 87.5, "a slack window gives way, too");
}

#[test]
fn vcp_paces_small_windows_of_long_round_trips_only() {
    let mut law = vcp::Law::new();
    let mut paced = |size, ms| {
        law.stamp(&leaving(size, Span::from_millis(ms)));
        law.pacing_rate()
    };
    assert_eq!(paced(10.0, 50), None);
    assert_eq!(paced(65.0, 400), None);
    assert_eq!(paced(10.0, 400), Some(Rate::from_bps(200_000)));
}

#[test]
fn aecp_follows_the_factor_once_a_round_and_is_paced() {
    let mut law = aecp::Law::new(Gains::PAPER);
    assert_eq!(law.stamp(&leaving(1.0, RTT)), Note::Aecp(Factor::UNSET));
    let mut now = window(1.0);
    law.handle_round(&ack(50, Fullness::Full), &mut now);
    assert_eq!(law.rate(), Some(20.0), "a packet in a round trip");
    let factor = Note::Aecp(Factor::from_packets_per_second(8_000.0));
    take(&mut law, factor, &ack(100, Fullness::Full), &mut now);
    assert_eq!(law.rate(), Some(20.0), "not before the round ends");
    law.handle_round(&ack(100, Fullness::Full), &mut now);
    let want = 20_f64.powf(0.9) * 8_000_f64.powf(0.1);
    assert!((law.rate().unwrap() - want).abs() < 1e-9);
    assert!((now.size - (want * 0.05).max(1.0)).abs() < 1e-12);
    let pace = law.pacing_rate().expect("a pace").as_f64();
    assert!((pace - want * 8_000.0).abs() <= 1.0);
}

#[test]
fn aecp_comes_to_rest_at_the_factor_as_sixteen_bits_have_it() {
    let (offered, mut now) = (8_001.3, window(1.0));
    let mut law = aecp::Law::new(Gains::PAPER);
    law.handle_round(&ack(50, Fullness::Full), &mut now);
    for round in 1..=400 {
        let factor = Note::Aecp(Factor::from_packets_per_second(offered));
        take(&mut law, factor, &ack(50 * round, Fullness::Full), &mut now);
        law.handle_round(&ack(50 * round, Fullness::Full), &mut now);
    }
    // Between 4,096 and 8,192 a step of the field is two packets per second.
    assert!((law.rate().unwrap() - 8_002.0).abs() < 1e-6, "{:?}", law.rate());
}

#[test]
fn aecps_packets_and_acknowledgments_have_three_bytes_more_and_the_others_none() {
    for (routed, more) in [(Routed::Aecp, 3), (Routed::Xcp, 0), (Routed::Vcp, 0)] {
        let config = SenderConfig { opening: Opening::Open, ..SenderConfig::default() };
        let mut sender = Sender::new(at(0), routed.adapt(config), routed.law());
        let mut receiver =
            Receiver::new(routed.adapt_receiver(ReceiverConfig {
                delay: AckDelay::None,
                ..ReceiverConfig::default()
            }));
        let packet = sender.poll_transmit(at(0)).expect("a packet of data");
        assert_eq!(packet.size, Bytes(1_500 + more), "{routed:?}");
        receiver.handle_packet(at(50), &packet);
        let answer = receiver.poll_transmit(at(50)).expect("an acknowledgment");
        assert_eq!(answer.size, Bytes(40 + more), "{routed:?}");
    }
}

#[test]
fn aecp_keeps_its_rate_through_losses_and_on_paths_without_routers() {
    let mut law = aecp::Law::new(Gains::PAPER);
    let mut now = window(10.0);
    law.handle_round(&ack(50, Fullness::Full), &mut now);
    for _ in 0..3 {
        law.handle_loss(&loss(10.0), &mut now);
        law.handle_recovered(at(60), &mut now);
        law.handle_timeout(&loss(10.0), &mut now);
        take(&mut law, Note::Aecp(Factor::UNSET), &ack(70, Fullness::Full), &mut now);
        law.handle_round(&ack(100, Fullness::Full), &mut now);
    }
    assert_eq!((law.rate(), now.size), (Some(200.0), 10.0));
}

#[test]
fn notes_are_small_enough_to_be_copied_with_every_packet() {
    assert!(size_of::<Note>() <= 40);
    assert!(size_of::<Packet>() <= 160);
}
