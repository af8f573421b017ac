//! A sink that asks and a source that answers, without a network between.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const TICK: Span = Span::from_millis(1);
const START: Time = Time::from_nanos(1_000_000_000);
const PATIENCE: Span = Span::from_millis(60);

fn only(range: Range<u64>) -> Vec<Range<u64>> {
    core::iter::once(range).collect()
}

/// What a channel does to its packets, in tenths of a percent, and its delays in ticks.
#[derive(Clone, Debug)]
struct Weather {
    loss: u32,
    copies: u32,
    delay: u64,
    jitter: u64,
    /// Ticks between two ends of a control interval; longer than the jitter.
    interval: u64,
}

enum Down {
    Data(u32, u64),
    Status(u32, u32, u32),
}

/// Asker and answerer over a channel that loses, copies and reorders.
struct Pair {
    asker: Asker,
    answerer: Answerer,
    weather: Weather,
    tick: u64,
    serial: u64,
    seed: u64,
    up: BTreeMap<(u64, u64), Request>,
    down: BTreeMap<(u64, u64), Down>,
    delivered: BTreeMap<u64, u32>,
    sent: BTreeMap<u64, u32>,
    lost: BTreeMap<u64, u32>,
    requests: Vec<Wanted>,
}

impl Pair {
    fn new(weather: Weather, seed: u64) -> Pair {
        Pair {
            asker: Asker::new(1_400),
            answerer: Answerer::default(),
            weather,
            tick: 0,
            serial: 0,
            seed,
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            delivered: BTreeMap::new(),
            sent: BTreeMap::new(),
            lost: BTreeMap::new(),
            requests: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }

    fn happens(&mut self, chance: u32) -> bool {
        self.random(1_000) < u64::from(chance)
    }

    /// When a packet sent now arrives; never if it is lost, perhaps twice.
    fn arrivals(&mut self) -> Vec<(u64, u64)> {
        if self.happens(self.weather.loss) {
            return Vec::new();
        }
        let copies = if self.happens(self.weather.copies) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                self.serial += 1;
                let late = self.random(self.weather.jitter + 1);
                (self.tick + self.weather.delay + late, self.serial)
            })
            .collect()
    }

    fn status(&self) -> Down {
        let (work, repair) = (self.answerer.front(Class::Work), self.answerer.front(Class::Repair));
        Down::Status(self.answerer.requests_next(), work, repair)
    }

    fn ask(&mut self) {
        let now = START + TICK * self.tick;
        while let Some(request) = self.asker.poll_request(now, PATIENCE) {
            self.requests.push(request.wanted.clone());
            for at in self.arrivals() {
                self.up.insert(at, request.clone());
            }
        }
        while let Some(entry) = self.up.first_entry().filter(|e| e.key().0 <= self.tick) {
            self.answerer.handle_request(entry.remove());
        }
    }

    fn answer(&mut self, units: u64) {
        for _ in 0..units {
            let Some((number, unit)) = self.answerer.peek() else { break };
            self.answerer.advance();
            *self.sent.entry(unit).or_default() += 1;
            let arrivals = self.arrivals();
            if arrivals.is_empty() {
                *self.lost.entry(unit).or_default() += 1;
            }
            for at in arrivals {
                self.down.insert(at, Down::Data(number, unit));
            }
        }
        for at in self.arrivals() {
            let status = self.status();
            self.down.insert(at, status);
        }
    }

    fn hear(&mut self) {
        while let Some(entry) = self.down.first_entry().filter(|e| e.key().0 <= self.tick) {
            match entry.remove() {
                Down::Data(number, unit) => {
                    self.asker.handle_data(number, unit);
                    if self.asker.received(unit) {
                        *self.delivered.entry(unit).or_default() += 1;
                    }
                }
                Down::Status(next, work, repair) => self.asker.handle_status(next, work, repair),
            }
        }
        if self.tick.is_multiple_of(self.weather.interval) {
            self.asker.settle();
        }
    }

    fn step(&mut self, units: u64) {
        self.ask();
        self.answer(units);
        self.hear();
        self.tick += 1;
    }

    fn run_to_the_end(&mut self, units: u64) {
        while self.asker.outstanding() > 0 {
            assert!(self.tick < 20_000, "it ends: {} left", self.asker.outstanding());
            self.step(units);
        }
    }
}

fn weather() -> impl Strategy<Value = Weather> {
    (0..400_u32, 0..100_u32, 1..30_u64, 0..12_u64).prop_map(|(loss, copies, delay, jitter)| {
        Weather { loss, copies, delay, jitter, interval: jitter + 4 }
    })
}

const CALM: Weather = Weather { loss: 0, copies: 0, delay: 5, jitter: 0, interval: 4 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_unit_comes_once_and_none_is_sent_again_unless_it_was_lost(
        weather in weather(),
        seed: u64,
        blocks in proptest::collection::vec((0..40_u64, 1..190_u64), 1..20),
        rate in 1..60_u64,
    ) {
        let mut pair = Pair::new(weather, seed);
        let mut at = 0;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (gap, len) in blocks {
            ranges.push(at + gap..at + gap + len);
            at += gap + len;
        }
        let wanted: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
        // In an order of its own, so that requests must end where units would not ascend.
        ranges.sort_by_key(|r| (r.start.wrapping_mul(seed | 1), r.start));
        for range in ranges {
            pair.asker.assign(range);
        }
        pair.run_to_the_end(rate);
        prop_assert!(pair.delivered.values().all(|&n| n == 1));
        prop_assert!(pair.delivered.keys().eq(wanted.iter()));
        for (unit, sent) in &pair.sent {
            let lost = pair.lost.get(unit).copied().unwrap_or(0);
            prop_assert!(*sent <= lost + 1, "unit {unit}: sent {sent}, lost {lost}");
        }
    }

    #[test]
    fn what_is_dropped_is_never_sent_afterwards_and_nothing_is_forgotten(
        loss in 0..300_u32, seed: u64, before in 0..60_u64, len in 1..5_000_u64, rate in 1..60_u64,
    ) {
        // Without reordering: an order that overtakes data cannot be told from one that follows.
        let mut pair = Pair::new(Weather { loss, ..CALM }, seed);
        pair.asker.assign(0..len);
        (0..before).for_each(|_| pair.step(rate));
        if pair.asker.outstanding() == 0 {
            return Ok(());
        }
        pair.asker.ask_drop();
        pair.asker.assign(len..len + 10);
        let dropped = loop {
            prop_assert!(pair.tick < 20_000);
            pair.step(rate);
            if let Some(dropped) = pair.asker.poll_dropped() {
                break dropped;
            }
        };
        let here: u64 = pair.delivered.keys().count() as u64;
        prop_assert_eq!(dropped.len() + here, len + 10);
        prop_assert!(pair.delivered.keys().all(|&unit| !dropped.contains(unit)));
        let sent: u32 = pair.sent.values().sum();
        (0..200).for_each(|_| pair.step(rate));
        prop_assert_eq!(pair.sent.values().sum::<u32>(), sent, "the source has let go");
        prop_assert_eq!(pair.asker.outstanding(), 0);
        prop_assert!(pair.asker.next_due(PATIENCE).is_none(), "and nothing is to be done");
    }
}

#[test]
fn few_losses_are_asked_for_as_ranges_and_many_as_a_map() {
    for (every, map) in [(500, false), (2, true)] {
        let mut asker = Asker::new(1_400);
        asker.assign(0..4_000);
        let work = asker.poll_request(START, PATIENCE).unwrap();
        assert_eq!(work.wanted, Wanted::Work(only(0..4_000)));
        for unit in (0..4_000).filter(|u| u % every != 1) {
            asker.received(unit);
        }
        asker.handle_status(2, 2, 2);
        asker.settle();
        asker.settle();
        let repair = asker.poll_request(START, PATIENCE).unwrap();
        let lost: Vec<u64> = (0..4_000).filter(|u| u % every == 1).collect();
        let asked: Vec<u64> = match &repair.wanted {
            Wanted::Repair(ranges) => ranges.iter().cloned().flatten().collect(),
            Wanted::LossMap { first, bits } => loss_map_ranges(*first, bits).flatten().collect(),
            Wanted::Work(_) | Wanted::Drop | Wanted::Begin => Vec::new(),
        };
        assert_eq!(asked, lost, "one lost in {every}");
        assert_eq!(matches!(repair.wanted, Wanted::LossMap { .. }), map);
    }
}

#[test]
fn losses_beyond_one_map_go_into_the_next() {
    let mut asker = Asker::new(1_400);
    asker.assign(0..30_000);
    asker.poll_request(START, PATIENCE);
    for unit in (0..30_000).step_by(2) {
        asker.received(unit);
    }
    asker.handle_status(2, 2, 2);
    asker.settle();
    asker.settle();
    let mut asked = Vec::new();
    while let Some(request) = asker.poll_request(START, PATIENCE) {
        let Wanted::LossMap { first, bits } = request.wanted else { panic!("{request:?}") };
        assert!(bits.len() <= LOSS_MAP_BYTES);
        asked.extend(loss_map_ranges(first, &bits).flatten());
    }
    assert_eq!(asked, (1..30_000).step_by(2).collect::<Vec<u64>>());
}

#[test]
fn repairs_are_sent_before_any_work() {
    let mut answerer = Answerer::default();
    let ask = |number, wanted| Request { number, unit_payload: 1_400, wanted };
    answerer.handle_request(ask(1, Wanted::Work(only(0..2))));
    answerer.handle_request(ask(2, Wanted::Repair(only(70..71))));
    let mut order = Vec::new();
    while let Some(next) = answerer.peek() {
        order.push(next);
        answerer.advance();
    }
    assert_eq!(order, [(2, 70), (1, 0), (1, 1)]);
}

#[test]
fn no_more_requests_are_on_their_way_than_the_window_holds() {
    let mut asker = Asker::new(1_400);
    for block in 0..40_000_u64 {
        asker.assign(block * 10..block * 10 + 5);
    }
    let mut requests = 0;
    while asker.poll_request(START, PATIENCE).is_some() {
        requests += 1;
    }
    assert_eq!(requests, REQUEST_WINDOW);
    assert_eq!(asker.next_due(PATIENCE), Some(START + PATIENCE));
}

#[test]
fn requests_outside_the_window_and_those_accepted_before_are_ignored() {
    let mut answerer = Answerer::default();
    let work = |number| Request { number, unit_payload: 1, wanted: Wanted::Work(only(0..5)) };
    for number in [0, REQUEST_WINDOW + 1, u32::MAX] {
        assert!(!answerer.handle_request(work(number)), "{number}");
    }
    assert!(answerer.early.is_empty());
    assert!(!answerer.handle_request(work(REQUEST_WINDOW)), "it waits for those before it");
    assert!(answerer.handle_request(work(1)));
    assert!(!answerer.handle_request(work(1)));
    assert_eq!(answerer.peek(), Some((1, 0)));
    assert_eq!(answerer.queues[0].len(), 1);
}

#[test]
fn overlapping_descending_and_endless_ranges_cost_one_piece_each() {
    let mut answerer = Answerer::default();
    let end = (1 << 48) - 1;
    let ranges = Vec::from([5..end, 5..end, 100..200, 0..1]);
    let request = Request { number: 1, unit_payload: 1, wanted: Wanted::Work(ranges) };
    assert!(answerer.handle_request(request));
    assert_eq!(answerer.queues[0].len(), 4);
    assert_eq!(answerer.upcoming().count(), 4);
}

#[test]
fn a_greedy_peer_fills_a_bounded_queue() {
    let mut answerer = Answerer::default();
    let bits = || alloc::vec![0b0101_0101_u8; LOSS_MAP_BYTES];
    let map = |number| {
        let wanted = Wanted::LossMap { first: 0, bits: bits() };
        Request { number, unit_payload: 1, wanted }
    };
    for number in 1..1_000 {
        answerer.handle_request(map(number));
    }
    assert!(answerer.queues[1].len() <= QUEUED_PIECES);
    assert!(answerer.early.len() <= REQUEST_WINDOW as usize);
    let accepted = answerer.accepted;
    while answerer.queues[1].len() > QUEUED_PIECES / 2 {
        answerer.advance();
    }
    assert!(answerer.handle_request(map(accepted + 1)), "with room again, the rest is taken");
}

#[test]
fn an_order_to_drop_is_taken_even_when_the_queue_is_full() {
    let mut answerer = Answerer::default();
    let bits = alloc::vec![0b0101_0101_u8; LOSS_MAP_BYTES];
    let mut number = 1;
    loop {
        let wanted = Wanted::LossMap { first: 0, bits: bits.clone() };
        if !answerer.handle_request(Request { number, unit_payload: 1, wanted }) {
            break;
        }
        number += 1;
    }
    answerer.early.clear();
    assert!(answerer.handle_request(Request { number, unit_payload: 1, wanted: Wanted::Drop }));
    assert_eq!(answerer.peek(), None);
    assert_eq!(answerer.front(Class::Repair), number + 1);
}

#[test]
fn when_all_request_numbers_are_used_up_nothing_more_is_asked_and_no_number_comes_twice() {
    let now = Time::from_nanos(1);
    let mut asker = Asker::new(1_400);
    asker.next_number = u32::MAX - 1;
    asker.assign(0..10);
    assert_eq!(asker.poll_request(now, Span::from_secs(1)).map(|r| r.number), Some(u32::MAX - 1));
    asker.assign(10..20);
    assert!(asker.is_spent());
    assert_eq!(asker.poll_request(now, Span::from_secs(1)), None);
}
