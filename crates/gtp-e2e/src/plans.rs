//! A plan over six hosts: when each transfer ends beside when it was foreseen, and what a plan that
//! is killed and run again moves.
//!
//! Twelve objects, three of which two or three hosts have. Nothing but the hosts' own capacities
//! limits. What passes the host of the plan is read off the emulated links.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::lab::{Lab, namespace};
use crate::running::Running;

const HOSTS: usize = 6;
const OBJECTS: usize = 12;

/// What each host can send, and receive, in Mbit/s.
const RATE: u32 = 40;

/// Bytes of the smallest object, and by how much each is larger than the one before.
const SIZE: (u64, u64) = (30_000_000, 3_000_000);

/// How far the end of a transfer may be from the one foreseen, as a part of that.
const OFF: f64 = 0.10;
/// How much longer the whole may take than the fluid model says.
const TOTAL: f64 = 1.05;
/// What may pass the host of the plan, as a part of what is moved.
const THROUGH: f64 = 0.02;

/// An object: its bytes, who has it and who wants it.
struct Object {
    name: String,
    size: u64,
    has: Vec<usize>,
    wants: usize,
}

fn objects() -> Vec<Object> {
    let object = |n: usize| {
        let has = match n {
            0 => vec![0, 1],
            5 => vec![2, 3, 4],
            9 => vec![3, 5],
            n => vec![n % HOSTS],
        };
        let to = (n + 2 + n / HOSTS) % HOSTS;
        let wants = if has.contains(&to) { (to + 1) % HOSTS } else { to };
        let size = SIZE.0 + SIZE.1 * n as u64;
        Object { name: format!("o{n:02}"), size, has, wants }
    };
    (0..OBJECTS).map(object).collect()
}

/// Six servers, and the host of the plan.
struct World {
    lab: Lab,
    objects: Vec<Object>,
    gtp: PathBuf,
}

fn address(host: usize) -> String {
    format!("10.77.0.{}", 20 + host)
}

/// The network file: every two hosts are 20 ms apart.
fn network() -> String {
    let mut text = "[emulator]\nmemory = \"1GiB\"\n".to_owned();
    let names: Vec<String> = (0..HOSTS).map(|n| format!("h{n}")).chain(["ctl".into()]).collect();
    for (n, name) in names.iter().enumerate() {
        text += &format!(
            "[[host]]\nname = \"{name}\"\nnamespace = \"{}\"\naddress = [\"{}/24\"]\n\
             [[link]]\nname = \"from-{name}\"\ndelay = \"10ms\"\n",
            namespace(name),
            address(n)
        );
    }
    for from in &names {
        for to in names.iter().filter(|&to| to != from) {
            text += &format!(
                "[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [\"from-{from}\"]\n"
            );
        }
    }
    text
}

impl World {
    fn open(tools: &Tools) -> Result<World> {
        let mut lab = Lab::open_file(&network(), &tools.gtp)?;
        let id = lab.command("ctl", &tools.gtp).arg("id").output()?.stdout;
        let (rate, objects) = (format!("{RATE}Mbit"), objects());
        let mut plan = String::new();
        for n in 0..HOSTS {
            let (name, data) = (format!("h{n}"), lab.dir.path().join(format!("data{n}")));
            fs::create_dir(&data)?;
            for object in objects.iter().filter(|object| object.has.contains(&n)) {
                write(&data.join(&object.name), object.size)?;
            }
            let config = lab.config(&format!("{name}-4810"));
            fs::create_dir_all(&config)?;
            fs::write(config.join("authorized_keys"), &id)?;
            let options = ["--writable", "--daemon", "off", "--third-party", "10.77.0.0/24"];
            let capacity = ["--capacity-in", &rate, "--capacity-out", &rate];
            let key = lab.serve(&name, &data, &[&options[..], &capacity].concat())?;
            plan += &format!(
                "[host.{name}]\nurl = \"gtp://{}\"\nkey = \"{key}\"\nin = \"{rate}\"\n\
                 out = \"{rate}\"\n",
                address(n)
            );
        }
        for object in &objects {
            let has: Vec<String> = object.has.iter().map(|n| format!("\"h{n}\"")).collect();
            plan += &format!(
                "[object.{}]\nhas = [{}]\nwants = [\"h{}\"]\n",
                object.name,
                has.join(", "),
                object.wants
            );
        }
        fs::write(lab.dir.path().join("plan.toml"), plan)?;
        Ok(World { lab, objects, gtp: tools.gtp.clone() })
    }

    fn command(&self) -> Command {
        let mut command = self.lab.command("ctl", &self.gtp);
        command.arg("plan").arg(self.lab.dir.path().join("plan.toml")).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Runs the plan to its end; returns its lines.
    fn run(&self) -> Result<Vec<Value>> {
        let output = self.command().output()?;
        ensure!(output.status.success(), "the plan failed: {:?}", output.status);
        let lines = String::from_utf8(output.stdout)?;
        lines.lines().map(|line| serde_json::from_str(line).context("a line")).collect()
    }

    fn target(&self, object: &Object) -> PathBuf {
        self.lab.dir.path().join(format!("data{}", object.wants)).join(&object.name)
    }

    /// Whether each object is where it is wanted, byte for byte.
    fn is_done(&self) -> Result<bool> {
        for object in &self.objects {
            let source = self.lab.dir.path().join(format!("data{}", object.has[0]));
            if fs::read(source.join(&object.name))? != fs::read(self.target(object))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes away what was brought.
    fn clear(&self) -> Result<()> {
        self.objects.iter().try_for_each(|object| fs::remove_file(self.target(object)))?;
        Ok(())
    }
}

/// Content that does not repeat, with one time of change at each host.
pub(crate) fn write(path: &Path, size: u64) -> Result<()> {
    let mut state = size;
    let mut next = || {
        // Knuth's generator (MMIX); its high bits are used.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let content: Vec<u8> = (0..size).map(|_| next()).collect();
    fs::write(path, content)?;
    let when = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(path)?.set_modified(when)?;
    Ok(())
}

/// A plan run to its end, then one that is killed in the midst and run again.
///
/// # Errors
/// If the network or a process cannot be started, or a plan fails.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    let world = World::open(tools)?;
    let told = world.run()?;
    ensure!(world.is_done()?, "something is not where it is wanted");
    let whole = ends(&world, &told)?;
    world.clear()?;
    let again = killed(&world)?;
    Ok(vec![whole, again])
}

fn of<'e>(told: &'e [Value], event: &str) -> impl Iterator<Item = &'e Value> {
    told.iter().filter(move |line| line["event"] == event)
}

/// How far each transfer's end is from the one that was foreseen.
fn ends(world: &World, told: &[Value]) -> Result<Value> {
    let (mut off, mut latest) = (Vec::new(), 0.0_f64);
    for done in of(told, "done") {
        let end = done["end"].as_f64().context("no end")?;
        let planned = done["planned_end"].as_f64().context("no planned end")?;
        latest = latest.max(end - planned);
        off.push((end / planned - 1.0, done["object"].as_str().unwrap_or_default().to_owned()));
    }
    ensure!(off.len() == OBJECTS, "{} of {OBJECTS} are done", off.len());
    let last = of(told, "ended").last().context("no end")?;
    let (seconds, planned) =
        (last["seconds"].as_f64().context("none")?, last["planned_end"].as_f64().context("none")?);
    let worst = off.iter().map(|(off, _)| off.abs()).fold(0.0, f64::max);
    let total = seconds / planned;
    let bytes: u64 = world.objects.iter().map(|object| object.size).sum();
    let through = passed(world)? as f64 / bytes as f64;
    let mut missed = Vec::new();
    for (off, name) in off.iter().filter(|(off, _)| off.abs() > OFF) {
        missed.push(format!("{name} ends {:+.1} % from what was foreseen", 100.0 * off));
    }
    if total > TOTAL {
        missed.push(format!("the whole takes {total:.3} of the fluid optimum"));
    }
    if through > THROUGH {
        missed.push(format!("{:.1} % pass the host of the plan", 100.0 * through));
    }
    Ok(json!({
        "case": "plan",
        "transfers": off.len(),
        "worst_end_off": worst,
        "latest_by_seconds": latest,
        "seconds": seconds,
        "planned_seconds": planned,
        "total_of_optimum": total,
        "through_the_host_of_the_plan": through,
        "missed": missed,
    }))
}

/// Bytes that have left the host of the plan.
fn passed(world: &World) -> Result<u64> {
    let link = world.lab.emulator().stats()?.links;
    let own = link.iter().find(|link| link.name == "from-ctl").context("no such link")?;
    Ok(own.carried_bytes)
}

/// A plan that is killed once some objects are there, and run again.
fn killed(world: &World) -> Result<Value> {
    let mut running = Running::start("the plan", world.command().stdout(Stdio::null()))?;
    let is_there = |object: &&Object| world.target(object).exists();
    let began = world.lab.now();
    while world.objects.iter().filter(is_there).count() < OBJECTS / 3 {
        ensure!(world.lab.now() - began < 120.0, "the plan does not come so far");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.child.kill()?;
    running.child.wait()?;
    let complete: Vec<String> =
        world.objects.iter().filter(is_there).map(|object| object.name.clone()).collect();
    let told = world.run()?;
    ensure!(world.is_done()?, "something is not where it is wanted");
    let mut missed = Vec::new();
    let mut resumed = 0;
    for done in of(&told, "done") {
        let name = done["object"].as_str().unwrap_or_default();
        let written = done["files_written"].as_u64().context("no count")?;
        if complete.iter().any(|complete| complete == name) && written > 0 {
            missed.push(format!("{name} is moved again"));
        }
        resumed += done["resumed_bytes"].as_u64().context("no bytes")?;
    }
    Ok(json!({
        "case": "plan-killed",
        "complete_when_killed": complete.len(),
        "resumed_bytes": resumed,
        "missed": missed,
    }))
}
