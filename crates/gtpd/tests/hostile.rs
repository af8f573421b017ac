//! A process that writes random words to its page at full speed harms itself alone.

mod posted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gtp_alloc::{Rate, Span, Time};
use gtp_share::{Found, GrantsReader, ReportsWriter};
use gtpd::{EndNodeSessions, Hub, HubConfig, Who};

/// A generator that does not repeat soon (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Writes all over the page until told to stop: random bits, and records with random fields.
fn scribble(page: &ReportsWriter, stop: &AtomicBool) -> u64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut writes = 0;
    while !stop.load(Ordering::Relaxed) {
        let words = page.raw();
        for _ in 0..1_000 {
            let at = random.next() as usize % words.len();
            let word = match random.next() % 4 {
                0 => random.next() & !0xffff_ffff | 0x0101_0201, // Codes that mean something.
                1 => f64::to_bits(1e300),
                2 => u64::MAX,
                _ => random.next(),
            };
            words[at].store(word, Ordering::Relaxed);
            writes += 1;
        }
    }
    writes
}

/// Three seconds; with `GTP_LONG=1` a minute.
#[test]
fn others_keep_their_half_beside_a_user_who_writes_at_random() {
    const MBPS: u64 = 100;
    let start = Time::from_nanos(1_000_000_000);
    let interval = Span::from_millis(20);
    let config = HubConfig {
        capacity_out: Rate::from_mbps(MBPS),
        capacity_in: Rate::from_mbps(MBPS),
        interval: Some(interval),
        grace: Span::ZERO,
        users: BTreeMap::new(),
        most: BTreeMap::new(),
        least: BTreeMap::new(),
        end_node: EndNodeSessions::default(),
    };
    let mut hub = Hub::new(start, &config);
    let attach = |hub: &mut Hub, id, uid| {
        let who = Who { uid, pid: 1, program: "test".into() };
        let ([reports, grants], slots) = hub.attach(start, id, who, 256).unwrap();
        let reports = ReportsWriter::open(&reports, slots).unwrap();
        (reports, GrantsReader::open(&grants, slots).unwrap())
    };
    let (liar, _) = attach(&mut hub, 1, 1);
    let (honest, grants) = attach(&mut hub, 2, 2);
    let mut posted = posted::session();
    let stop = Arc::new(AtomicBool::new(false));
    let liar = Arc::new(liar);
    let writer = {
        let (liar, stop) = (liar.clone(), stop.clone());
        std::thread::spawn(move || scribble(&liar, &stop))
    };
    let long = std::env::var("GTP_LONG").as_deref() == Ok("1");
    let end = Instant::now() + Duration::from_secs(if long { 60 } else { 3 });
    let (mut now, mut ticks, mut longest) = (start, 0_u64, Duration::ZERO);
    let mut news = Vec::new();
    // What the liar says it holds is believed for the first seconds of a daemon; after those the
    // honest session is never below its user's half.
    let settled = start + Span::from_secs(10);
    while Instant::now() < end || now < settled + Span::from_secs(1) {
        honest.post(0, &posted);
        honest.beat();
        hub.wake(now);
        let began = Instant::now();
        hub.tick(now, &mut news);
        longest = longest.max(began.elapsed());
        if let Found::Record(granted) = grants.read(0) {
            posted.report.echoed = granted.grant.number;
            let mbps = granted.grant.rate.as_f64() / 1e6;
            assert!(mbps <= MBPS as f64);
            assert!(now < settled || mbps >= 0.5 * MBPS as f64 * 0.999, "{mbps} at {now:?}");
        }
        now += interval;
        ticks += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let writes = writer.join().unwrap();
    eprintln!("{writes} writes, {ticks} ticks, the longest of {longest:?}");
    assert!(writes > 10_000 && ticks > 500, "{writes} writes, {ticks} ticks");
    assert!(longest < Duration::from_secs(1), "a tick of {longest:?}");
}
