//! The network file as it is written, and its translation.
//!
//! Whatever makes no sense is refused at its own place in the file. Nothing outside sees these
//! types. How a quantity is read is in `quantity`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{
    Burst, Chance, Change, Jitter, LinkSpec, LinkState, Order, Policer, Reorder, Trace,
};
use serde::Deserialize;
use toml::Spanned;

use super::quantity::{Delay, Idle, Memory, Moment, Queue, Room, Text};
use super::{Carriage, EmulatorSpec, HostSpec, NamedLink, NetSpec, PathSpec, RouteSpec, SpecError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    emulator: RawEmulator,
    #[serde(default)]
    link: Vec<RawLink>,
    #[serde(default)]
    path: Vec<RawPath>,
    #[serde(default)]
    host: Vec<RawHost>,
    #[serde(default)]
    route: Vec<RawRoute>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawEmulator {
    tick: Option<Spanned<Text<Span>>>,
    seed: Option<u64>,
    memory: Option<Text<Memory>>,
    idle: Option<Text<Idle>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    name: Spanned<String>,
    rate: Option<Text<Rate>>,
    trace: Option<Spanned<String>>,
    delay: Option<Text<Delay>>,
    queue: Option<Spanned<Text<Queue>>>,
    mtu: Option<Spanned<Text<Bytes>>>,
    policer: Option<RawPolicer>,
    jitter: Option<Text<Delay>>,
    #[serde(default)]
    jitter_order: RawOrder,
    loss: Option<Text<Chance>>,
    burst: Option<RawBurst>,
    duplicate: Option<Text<Chance>>,
    reorder: Option<RawReorder>,
    #[serde(default)]
    state: RawState,
    seed: Option<u64>,
    #[serde(default)]
    change: Vec<Spanned<RawChange>>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { rate = \"100Mbit\", bucket = \"10ms\" }"
)]
struct RawPolicer {
    rate: Text<Rate>,
    bucket: Spanned<Text<Queue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { enter = \"0.1%\", leave = \"25%\" }")]
struct RawBurst {
    enter: Text<Chance>,
    leave: Spanned<Text<Chance>>,
    loss: Option<Text<Chance>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { chance = \"1%\", extra = \"3ms\" }")]
struct RawReorder {
    chance: Text<Chance>,
    extra: Text<Delay>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChange {
    at: Text<Moment>,
    rate: Option<Text<Rate>>,
    delay: Option<Text<Delay>>,
    queue: Option<Text<Room>>,
    loss: Option<Text<Chance>>,
    state: Option<RawState>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    name: Spanned<String>,
    listen: SocketAddr,
    target: SocketAddr,
    up: Vec<Spanned<String>>,
    down: Vec<Spanned<String>>,
    #[serde(default)]
    udp: RawCarriage,
    #[serde(default)]
    tcp: RawCarriage,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    name: Spanned<String>,
    namespace: Spanned<String>,
    address: Spanned<OneOrMany>,
    mtu: Option<Spanned<Text<Bytes>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    from: Spanned<String>,
    to: Spanned<String>,
    links: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an address such as \"10.0.0.1/24\", or a list of them")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum RawOrder {
    #[default]
    Kept,
    Free,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum RawState {
    #[default]
    Up,
    Down,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum RawCarriage {
    #[default]
    Carried,
    Blocked,
}

/// Makes a trace of its name, or says why not.
type Traces<'a> = &'a dyn Fn(&str) -> Result<Trace, String>;

/// Reads a network from its text.
pub(super) fn parse(text: &str, traces: Traces<'_>) -> Result<NetSpec, SpecError> {
    let file: RawFile = toml::from_str(text).map_err(Box::new)?;
    let at = |place: usize, message: String| SpecError::Sense {
        line: 1 + text.bytes().take(place).filter(|&b| b == b'\n').count(),
        message,
    };
    let emulator = emulator(file.emulator, &at)?;
    let link_names = Names::new("link", file.link.iter().map(|l| &l.name), &at)?;
    Names::new("path", file.path.iter().map(|p| &p.name), &at)?;
    let host_names = Names::new("host", file.host.iter().map(|h| &h.name), &at)?;
    let numbered = file.link.into_iter().zip(0..);
    let links = numbered.map(|(link, n)| named_link(link, emulator.seed, n, traces, &at));
    let paths = file.path.into_iter().map(|path| {
        Ok(PathSpec {
            name: path.name.into_inner(),
            listen: path.listen,
            target: path.target,
            up: link_names.places(&path.up, &at)?,
            down: link_names.places(&path.down, &at)?,
            udp: carriage(path.udp),
            tcp: carriage(path.tcp),
        })
    });
    let routes = file.route.into_iter().map(|route| {
        Ok(RouteSpec {
            from: host_names.place(&route.from, &at)?,
            to: host_names.place(&route.to, &at)?,
            links: link_names.places(&route.links, &at)?,
        })
    });
    Ok(NetSpec {
        links: links.collect::<Result<_, SpecError>>()?,
        paths: paths.collect::<Result<_, SpecError>>()?,
        routes: routes.collect::<Result<_, SpecError>>()?,
        hosts: file.host.into_iter().map(|h| host(h, &at)).collect::<Result<_, SpecError>>()?,
        emulator,
    })
}

fn emulator(
    raw: RawEmulator,
    at: &dyn Fn(usize, String) -> SpecError,
) -> Result<EmulatorSpec, SpecError> {
    let usual = EmulatorSpec::default();
    let tick = raw.tick.map(|tick| match tick.get_ref().0 {
        span if (TICK_LEAST..=TICK_MOST).contains(&span) => Ok(span),
        span => {
            let message = format!("a tick of {} s: it is from 1us to 1s", span.as_secs_f64());
            Err(at(tick.span().start, message))
        }
    });
    Ok(EmulatorSpec {
        tick: tick.transpose()?.unwrap_or(usual.tick),
        seed: raw.seed.unwrap_or(usual.seed),
        memory: raw.memory.map_or(usual.memory, |m| m.0.0),
        idle: raw.idle.map_or(usual.idle, |i| i.0.0),
    })
}

fn named_link(
    raw: RawLink,
    seed: u64,
    number: u64,
    traces: Traces<'_>,
    at: &dyn Fn(usize, String) -> SpecError,
) -> Result<NamedLink, SpecError> {
    let trace = raw.trace.as_ref().map(|name| {
        let traced =
            raw.rate.is_some() || raw.change.iter().any(|change| change.get_ref().rate.is_some());
        let refused = |why| at(name.span().start, why);
        if traced {
            return Err(refused("a link has a rate or a trace".to_owned()));
        }
        traces(name.get_ref()).map_err(refused)
    });
    let trace = trace.transpose()?;
    let rate = raw.rate.map_or(Rate::UNLIMITED, |r| r.0);
    let rate = trace.as_ref().map_or(rate, Trace::mean_rate);
    let queue = match raw.queue {
        None if rate.is_unlimited() => Bytes(u64::MAX),
        None => rate.bytes_in(USUAL_QUEUE),
        Some(queue) => match queue.get_ref().0 {
            Queue::Bytes(bytes) => bytes,
            Queue::Span(_) if rate.is_unlimited() => {
                let message = "a queue given as a time needs the link's rate";
                return Err(at(queue.span().start, message.to_owned()));
            }
            Queue::Span(span) => rate.bytes_in(span),
        },
    };
    let order = match raw.jitter_order {
        RawOrder::Kept => Order::Kept,
        RawOrder::Free => Order::Free,
    };
    let burst = raw.burst.map(|raw| burst(raw, at)).transpose()?;
    let reorder = raw.reorder.map(|r| Reorder { chance: r.chance.0, extra: r.extra.0.0 });
    let changes = raw.change.into_iter().map(|raw| change(raw, at));
    let mut changes: Vec<_> = changes.collect::<Result<_, SpecError>>()?;
    changes.sort_by_key(|(at, _)| *at);
    Ok(NamedLink {
        name: raw.name.into_inner(),
        spec: LinkSpec {
            rate,
            trace,
            delay: raw.delay.map_or(Span::ZERO, |d| d.0.0),
            queue,
            mtu: raw.mtu.map(|mtu| link_mtu(mtu, at)).transpose()?,
            policer: raw.policer.map(|p| policer(p, at)).transpose()?,
            jitter: Jitter { span: raw.jitter.map_or(Span::ZERO, |j| j.0.0), order },
            loss: raw.loss.map_or(Chance::NEVER, |l| l.0),
            burst,
            duplicate: raw.duplicate.map_or(Chance::NEVER, |d| d.0),
            reorder: reorder.unwrap_or_default(),
            state: link_state(raw.state),
        },
        seed: raw.seed.unwrap_or(seed.wrapping_mul(1_000_003).wrapping_add(number)),
        changes,
    })
}

fn link_mtu(
    mtu: Spanned<Text<Bytes>>,
    at: &dyn Fn(usize, String) -> SpecError,
) -> Result<Bytes, SpecError> {
    let place = mtu.span().start;
    let bytes = mtu.into_inner().0;
    if (LEAST_LINK_MTU..=u64::from(u16::MAX)).contains(&bytes.0) {
        return Ok(bytes);
    }
    let message = format!("an MTU of {}B: a link's is from {LEAST_LINK_MTU}B to 65535B", bytes.0);
    Err(at(place, message))
}

fn policer(raw: RawPolicer, at: &dyn Fn(usize, String) -> SpecError) -> Result<Policer, SpecError> {
    let (rate, place) = (raw.rate.0, raw.bucket.span().start);
    let bucket = match raw.bucket.into_inner().0 {
        Queue::Bytes(bytes) => bytes,
        Queue::Span(span) => rate.bytes_in(span),
    };
    if bucket < BUCKET_LEAST {
        let (bucket, least) = (bucket.0, BUCKET_LEAST.0);
        let message = format!(
            "a bucket of {bucket} bytes lets no full packet pass: it takes {least} at least"
        );
        return Err(at(place, message));
    }
    Ok(Policer { rate, bucket })
}

fn burst(raw: RawBurst, at: &dyn Fn(usize, String) -> SpecError) -> Result<Burst, SpecError> {
    let leave = raw.leave.get_ref().0;
    if leave == Chance::NEVER {
        let message = "no burst ends with a chance of 0 to leave it".to_owned();
        return Err(at(raw.leave.span().start, message));
    }
    let loss = raw.loss.map_or(Chance::ALWAYS, |l| l.0);
    Ok(Burst { enter: raw.enter.0, leave, loss })
}

fn change(
    raw: Spanned<RawChange>,
    at: &dyn Fn(usize, String) -> SpecError,
) -> Result<(Span, Change), SpecError> {
    let place = raw.span().start;
    let raw = raw.into_inner();
    let change = Change {
        rate: raw.rate.map(|r| r.0),
        delay: raw.delay.map(|d| d.0.0),
        queue: raw.queue.map(|q| q.0.0),
        loss: raw.loss.map(|l| l.0),
        state: raw.state.map(link_state),
    };
    if change == Change::default() {
        let message = "nothing is changed: it takes a rate, delay, queue, loss or state".to_owned();
        return Err(at(place, message));
    }
    Ok((raw.at.0.0, change))
}

fn host(raw: RawHost, at: &dyn Fn(usize, String) -> SpecError) -> Result<HostSpec, SpecError> {
    let place = raw.address.span().start;
    let texts = match raw.address.into_inner() {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    };
    let addresses = texts.iter().map(|text| {
        address(text).ok_or_else(|| {
            at(place, format!("{text:?} is not an address with a prefix such as 10.0.0.1/24"))
        })
    });
    let namespace = raw.namespace.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if namespace.is_empty() || namespace.starts_with(['-', '.']) || !namespace.chars().all(plain) {
        let message = format!("{namespace:?} is not a namespace's name: letters, digits, - _ .");
        return Err(at(raw.namespace.span().start, message));
    }
    let mtu = match raw.mtu {
        None => USUAL_MTU,
        Some(mtu) => match u16::try_from(mtu.get_ref().0.0) {
            Ok(bytes) if bytes >= LEAST_MTU => bytes,
            Ok(_) | Err(_) => {
                let bytes = mtu.get_ref().0.0;
                let message = format!("an MTU of {bytes}B: a host's is from 576B to 65535B");
                return Err(at(mtu.span().start, message));
            }
        },
    };
    Ok(HostSpec {
        addresses: addresses.collect::<Result<_, SpecError>>()?,
        name: raw.name.into_inner(),
        namespace: raw.namespace.into_inner(),
        mtu,
    })
}

fn address(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = text.split_once('/')?;
    let (ip, length): (IpAddr, u8) = (ip.parse().ok()?, length.parse().ok()?);
    (length <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, length))
}

fn link_state(raw: RawState) -> LinkState {
    match raw {
        RawState::Up => LinkState::Up,
        RawState::Down => LinkState::Down,
    }
}

fn carriage(raw: RawCarriage) -> Carriage {
    match raw {
        RawCarriage::Carried => Carriage::Carried,
        RawCarriage::Blocked => Carriage::Blocked,
    }
}

/// The names of one kind of thing, each with its place.
struct Names {
    kind: &'static str,
    places: HashMap<String, usize>,
}

impl Names {
    fn new<'a>(
        kind: &'static str,
        names: impl Iterator<Item = &'a Spanned<String>>,
        at: &dyn Fn(usize, String) -> SpecError,
    ) -> Result<Names, SpecError> {
        let mut places = HashMap::new();
        for (place, name) in names.enumerate() {
            if places.insert(name.get_ref().clone(), place).is_some() {
                let message = format!("a second {kind} of the name {:?}", name.get_ref());
                return Err(at(name.span().start, message));
            }
        }
        Ok(Names { kind, places })
    }

    fn place(
        &self,
        name: &Spanned<String>,
        at: &dyn Fn(usize, String) -> SpecError,
    ) -> Result<usize, SpecError> {
        self.places.get(name.get_ref()).copied().ok_or_else(|| {
            let mut known: Vec<_> = self.places.keys().map(String::as_str).collect();
            known.sort_unstable();
            let (kind, known) = (self.kind, known.join(", "));
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let message = format!("no {kind} {:?}; there are: {known}", name.get_ref());
            at(name.span().start, message)
        })
    }

    fn places(
        &self,
        names: &[Spanned<String>],
        at: &dyn Fn(usize, String) -> SpecError,
    ) -> Result<Vec<usize>, SpecError> {
        names.iter().map(|name| self.place(name, at)).collect()
    }
}

/// A shorter tick has the emulator do nothing else than look.
const TICK_LEAST: Span = Span::from_micros(1);
/// A longer one lets packets out by the second.
const TICK_MOST: Span = Span::from_secs(1);
/// The queue of a link that has a rate and states none.
const USUAL_QUEUE: Span = Span::from_millis(100);
/// Ethernet's.
const USUAL_MTU: u16 = 1_500;
/// What a policer's bucket must hold: a packet of Ethernet.
const BUCKET_LEAST: Bytes = Bytes(1_500);
/// What IPv4 lets a link carry at least (RFC 791).
const LEAST_LINK_MTU: u64 = 68;
/// What every IPv4 host must take (RFC 791).
const LEAST_MTU: u16 = 576;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [emulator]
        tick = "50us"
        seed = 7

        [[link]]
        name = "access"
        rate = "700Mbit"
        delay = "0.5ms"
        queue = "100ms"
        loss = "0.1%"
        burst = { enter = "0.1%", leave = "25%" }
        jitter = "2ms"
        duplicate = "0.01%"
        reorder = { chance = "1%", extra = "3ms" }
        mtu = "1500B"
        policer = { rate = "100Mbit", bucket = "10ms" }
        [[link.change]]
        at = "2s"
        rate = "300Mbit"
        [[link.change]]
        at = "5s"
        state = "down"

        [[link]]
        name = "far"
        delay = "30ms"

        [[path]]
        name = "a"
        listen = "127.0.0.1:5001"
        target = "127.0.0.1:4810"
        up = ["far"]
        down = ["far", "access"]
        udp = "blocked"

        [[host]]
        name = "source"
        namespace = "src"
        address = ["10.0.0.1/24", "fd00::1/64"]

        [[host]]
        name = "sink"
        namespace = "dst"
        address = "10.0.0.2/24"

        [[route]]
        from = "source"
        to = "sink"
        links = ["far", "access"]
    "#;

    #[test]
    fn a_good_file_is_read_whole() {
        let spec = NetSpec::parse(GOOD).expect("good");
        assert_eq!(spec.emulator.tick, Span::from_micros(50));
        let access = &spec.links[0];
        assert_eq!(access.spec.rate, Rate::from_mbps(700));
        assert_eq!(access.spec.queue, Bytes(8_750_000));
        assert_eq!(access.spec.burst.map(|b| b.loss), Some(Chance::ALWAYS));
        let policer = Policer { rate: Rate::from_mbps(100), bucket: Bytes(125_000) };
        assert_eq!(access.spec.policer, Some(policer));
        assert_eq!(access.changes[1], (Span::from_secs(5), Change::DOWN));
        assert!(spec.links[1].spec.rate.is_unlimited());
        assert_eq!(spec.paths[0].down, [1, 0]);
        assert_eq!((spec.paths[0].udp, spec.paths[0].tcp), (Carriage::Blocked, Carriage::Carried));
        assert_eq!(spec.hosts[0].addresses.len(), 2);
        assert_eq!(spec.routes[0], RouteSpec { from: 0, to: 1, links: vec![1, 0] });
    }

    /// Replaces one piece of the good file and gives the refusal.
    fn refusal(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        NetSpec::parse(&GOOD.replacen(from, to, 1)).expect_err("refused").to_string()
    }

    #[test]
    fn refusals_name_the_line_and_what_was_expected() {
        let cases = [
            ("\"700Mbit\"", "700", "700Mbit"),
            ("\"700Mbit\"", "\"700\"", "bare number"),
            ("\"700Mbit\"", "\"0Mbit\"", "more than zero"),
            ("delay = \"0.5ms\"", "delai = \"0.5ms\"", "delay"),
            ("up = [\"far\"]", "up = [\"near\"]", "there are: access, far"),
            ("to = \"sink\"", "to = \"sinc\"", "no host"),
            ("name = \"far\"", "name = \"access\"", "second link"),
            ("\"10.0.0.2/24\"", "\"10.0.0.2/33\"", "prefix"),
            ("namespace = \"dst\"", "namespace = \"../x\"", "namespace"),
            ("state = \"down\"", "state = \"off\"", "down"),
            ("mtu = \"1500B\"", "mtu = \"0B\"", "from 68B"),
            ("mtu = \"1500B\"", "mtu = \"65536B\"", "to 65535B"),
            ("bucket = \"10ms\"", "bucket = \"1499B\"", "no full packet"),
            ("bucket = \"10ms\"", "buckets = \"10ms\"", "bucket"),
            ("tick = \"50us\"", "tick = \"0s\"", "from 1us to 1s"),
            ("seed = 7", "seed = -7", "-7"),
            ("seed = 7", "memory = \"0B\"", "\"0B\" is not a size from 64KiB to 1TiB"),
            ("seed = 7", "memory = \"2TiB\"", "a size from 64KiB to 1TiB"),
            ("seed = 7", "idle = \"0s\"", "\"0s\" is not a time from 1s to 24h"),
            ("seed = 7", "idle = \"25h\"", "a time from 1s to 24h"),
            ("\"700Mbit\"", "\"1001Tbit\"", "\"1001Tbit\" is not a rate"),
            ("\"700Mbit\"", "nan", "a bare number is refused"),
            ("delay = \"0.5ms\"", "delay = \"61min\"", "\"61min\" is not a time of at most 1h"),
            ("delay = \"0.5ms\"", "delay = \"-1ms\"", "\"-1ms\" is not a time"),
            ("queue = \"100ms\"", "queue = \"2TiB\"", "a size of at most 1TiB or a time"),
            ("queue = \"100ms\"", "queue = \"2h\"", "\"2h\" is not a size of at most 1TiB or"),
            ("jitter = \"2ms\"", "jitter = \"2h\"", "a time of at most 1h"),
            ("extra = \"3ms\"", "extra = \"3h\"", "a time of at most 1h"),
            ("bucket = \"10ms\"", "bucket = \"2TiB\"", "a size of at most 1TiB"),
            ("at = \"5s\"", "at = \"8761h\"", "a time of at most 8760h"),
            ("state = \"down\"", "queue = \"2TiB\"", "a size of at most 1TiB"),
            ("leave = \"25%\"", "leave = \"0%\"", "no burst ends"),
            ("{ chance = \"1%\", extra = \"3ms\" }", "\"1%\"", "a table such as { chance"),
            (
                "[[link.change]]\n        at = \"2s\"\n        rate = \"300Mbit\"",
                "[[link.change]]\n        at = \"2s\"",
                "nothing is changed",
            ),
        ];
        for (from, to, expected) in cases {
            let said = refusal(from, to);
            let before = GOOD.find(from).map_or("", |place| &GOOD[..place]);
            let line = format!("line {}", before.matches('\n').count() + 1);
            assert!(said.contains(&line) && said.contains(expected), "{from} -> {to}: {said}");
        }
    }

    #[test]
    fn a_trace_is_read_beside_its_network_and_refused_by_the_line_of_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        let network = |link: &str| {
            write("net.toml", &format!("[[link]]\nname = \"a\"\n{link}\n"));
            NetSpec::read(&folder.path().join("net.toml"))
        };
        write("good", "1\n1\n2\n");
        write("bad", "1\nx\n");
        let spec = network("trace = \"good\"\nqueue = \"1s\"").expect("good");
        let link = &spec.links[0].spec;
        assert_eq!(link.rate, Rate::from_bps(3 * 1_504 * 8 * 500));
        assert_eq!(link.queue, Bytes(3 * 1_504 * 500));
        assert!(link.trace.is_some());
        let cases = [
            ("trace = \"bad\"", "line 2 of the trace"),
            ("trace = \"none\"", "cannot read"),
            ("trace = \"good\"\nrate = \"1Mbit\"", "a rate or a trace"),
            ("trace = \"good\"\nchange = [{ at = \"1s\", rate = \"1Mbit\" }]", "or a trace"),
        ];
        for (link, expected) in cases {
            let said = network(link).expect_err("refused").to_string();
            assert!(said.contains("line 3") && said.contains(expected), "{link}: {said}");
        }
        let said = NetSpec::parse("[[link]]\nname = \"a\"\ntrace = \"good\"").expect_err("refused");
        assert!(said.to_string().contains("only a network that is a file"), "{said}");
    }

    #[test]
    fn a_queue_as_a_time_needs_a_rate() {
        let said = refusal("rate = \"700Mbit\"", "");
        assert!(said.contains("the link's rate"), "{said}");
    }
}
