//! Plans: objects move between servers, and nothing moves through the host that runs the plan. What
//! is wrong with a plan is told before anything moves, and what goes wrong later stops nothing
//! else.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::hosts::{Mesh, meshed};
use common::{Serving, World, bytes, events, require_root, wait_for};
use serde_json::Value;

/// Servers, each with an export, a key and a list of its own, that fetch for the client.
struct Sites {
    world: World,
    servers: Vec<Serving>,
    /// Where each listens.
    addresses: Vec<String>,
    /// What each can send and receive, in Mbit/s.
    rate: u32,
}

impl Sites {
    fn new(count: usize, rate: u32) -> Sites {
        Sites::at(count, rate, None)
    }

    fn at(count: usize, rate: u32, mesh: Option<&Mesh>) -> Sites {
        let world = World::new();
        let id = world.expect(0, &["id"]).stdout;
        let mut sites = Sites { world, servers: Vec::new(), addresses: Vec::new(), rate };
        for n in 0..count {
            fs::create_dir(sites.world.path(&format!("s{n}"))).unwrap();
            fs::create_dir(sites.world.path(&format!("c{n}"))).unwrap();
            let list = sites.world.path(&format!("c{n}/authorized_keys"));
            fs::write(list, &id).unwrap();
            let server = sites.serve(n, mesh, 0);
            let host = mesh.map_or("127.0.0.1".to_owned(), |_| meshed(n));
            sites.addresses.push(format!("{host}:{}", server.port));
            sites.servers.push(server);
        }
        sites
    }

    fn serve(&self, n: usize, mesh: Option<&Mesh>, port: u16) -> Serving {
        let (dir, capacity) = (format!("s{n}"), format!("{}Mbit", self.rate));
        let mut serve = self.world.gtp(&format!("c{n}"), &["serve", &dir, "--json", "--writable"]);
        serve.args(["--daemon", "off", "--capacity-in", &capacity, "--capacity-out", &capacity]);
        serve.args(["--third-party", "127.0.0.0/8:1-65535", "--third-party", "10.89.0.0/24"]);
        match mesh {
            Some(mesh) => {
                serve.args(["--listen", &format!("{}:4810", meshed(n))]);
                Serving::start(mesh.at(n, &serve))
            }
            None => {
                serve.args(["--listen", &format!("127.0.0.1:{port}")]);
                Serving::start(serve)
            }
        }
    }

    fn path(&self, n: usize, name: &str) -> PathBuf {
        self.world.path(&format!("s{n}")).join(name)
    }

    /// Writes an object at some servers, with one time of change.
    fn object(&self, name: &str, size: usize, at: &[usize]) -> Vec<u8> {
        let content = bytes(size, name.bytes().map(u64::from).sum());
        for &n in at {
            let path = self.path(n, name);
            fs::write(&path, &content).unwrap();
            let when = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(when).unwrap();
        }
        content
    }

    /// Writes a plan with these servers as hosts `h0`, `h1` and so on.
    fn plan(&self, objects: &str) {
        let host = |(n, address): (usize, &String)| {
            let (key, rate) = (&self.servers[n].fingerprint, self.rate);
            format!(
                "[host.h{n}]\nurl = \"gtp://{address}\"\nkey = \"{key}\"\nin = \"{rate}Mbit\"\n\
                 out = \"{rate}Mbit\"\n"
            )
        };
        let hosts: String = self.addresses.iter().enumerate().map(host).collect();
        fs::write(self.world.path("plan.toml"), hosts + objects).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.world.gtp("client", &["plan", "plan.toml"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Names in the directory of a server, those of unfinished files included.
    fn names(&self, n: usize) -> Vec<String> {
        let entries = self.world.path(&format!("s{n}")).read_dir().unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// `[object.NAME]` with those who have it and those who want it.
fn object(name: &str, has: &[usize], wants: &[usize]) -> String {
    let list = |hosts: &[usize]| {
        let names: Vec<String> = hosts.iter().map(|n| format!("\"h{n}\"")).collect();
        names.join(", ")
    };
    format!("[object.{name}]\nhas = [{}]\nwants = [{}]\n", list(has), list(wants))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The event of this kind about an object and who wants it.
fn about<'e>(all: &'e [Value], event: &str, object: &str, to: &str) -> &'e Value {
    let is = |e: &&Value| e["event"] == event && e["object"] == object && e["to"] == to;
    all.iter().find(is).unwrap_or_else(|| panic!("{event} {object} {to}: {all:#?}"))
}

#[test]
fn a_plan_moves_what_is_wanted_once_and_says_what_was_foreseen_beside_what_was() {
    let sites = Sites::new(3, 100);
    let (x, y) = (sites.object("x", 2_000_000, &[0]), sites.object("y", 1_000_000, &[0, 1]));
    sites.plan(&(object("x", &[0], &[1, 2]) + &object("y", &[0, 1], &[2])));
    let output = sites.run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(fs::read(sites.path(1, "x")).unwrap(), x);
    assert_eq!(fs::read(sites.path(2, "x")).unwrap(), x);
    assert_eq!(fs::read(sites.path(2, "y")).unwrap(), y);
    let all = events(&output);
    let done = about(&all, "done", "y", "h2");
    let planned = about(&all, "planned", "y", "h2");
    assert_eq!(done["planned_end"], planned["end"]);
    assert!(done["end"].as_f64().unwrap() > 0.0 && done["files_written"] == 1);
    let last = all.last().unwrap();
    assert_eq!(last["event"], "ended");
    assert_eq!((last["done"].as_u64(), last["exit_code"].as_u64()), (Some(3), Some(0)));
    let again = events(&sites.run(&["--json"]));
    for (name, to) in [("x", "h1"), ("x", "h2"), ("y", "h2")] {
        let done = about(&again, "done", name, to);
        let files = (done["files_written"].as_u64(), done["files_unchanged"].as_u64());
        assert_eq!(files, (Some(0), Some(1)));
    }
    let table = String::from_utf8(sites.run(&[]).stdout).unwrap();
    assert!(table.contains("planned end") && table.contains("3 of 3 done"), "{table}");
    assert!(table.lines().filter(|line| line.contains("done: it was there")).count() == 3);
}

#[test]
fn a_dry_run_moves_nothing_and_asks_nobody_if_the_plan_says_all_sizes() {
    let mut sites = Sites::new(2, 8);
    sites.object("x", 1_000_000, &[0]);
    sites.plan(&object("x", &[0], &[1]));
    let asked = events(&sites.run(&["-n", "--json"]));
    let sized = object("x", &[0], &[1]) + "size = \"1000000B\"\n";
    sites.plan(&sized);
    sites.servers.iter_mut().for_each(Serving::kill);
    let output = sites.run(&["--dry-run", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(events(&output), asked);
    // 1,000,000 bytes are some 1,055,000 on the wire, and 8 Mbit/s are a million bytes a second.
    let end = about(&asked, "planned", "x", "h1")["end"].as_f64().unwrap();
    assert!((1.05..1.06).contains(&end), "{end}");
    let share = &asked.iter().find(|e| e["event"] == "step").unwrap()["shares"][0];
    assert_eq!((share["from"].as_str(), share["rate"].as_f64()), (Some("h0"), Some(8e6)));
    assert_eq!(sites.names(1), [""; 0]);
    let text = String::from_utf8(sites.run(&["-n"]).stdout).unwrap();
    assert!(text.contains("x from h0 to h1: 8.0 Mbit/s") && text.contains("nothing was moved"));
}

#[test]
fn a_plan_with_faults_is_refused_whole_and_all_of_them_are_told() {
    let sites = Sites::new(3, 100);
    sites.object("x", 1_000, &[0]);
    sites.object("y", 1_000, &[0]);
    fs::write(sites.path(1, "y"), b"another").unwrap();
    let good = object("x", &[0], &[1, 2]);
    let refused = |objects: String, faults: &[&str]| {
        sites.plan(&objects);
        let output = sites.run(&["--json"]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        faults.iter().for_each(|fault| assert!(text.contains(fault), "{fault}: {text}"));
        let told = events(&output);
        let [error] = &told[..] else { panic!("{told:#?}") };
        assert_eq!(
            (error["event"].as_str(), error["kind"].as_str()),
            (Some("error"), Some("usage"))
        );
        assert_eq!((sites.names(2), sites.names(1)), (Vec::new(), vec!["y".to_owned()]));
    };
    let cycle = good.clone() + "after = [\"z\"]\n" + &object("z", &[0], &[2]) + "after = [\"x\"]\n";
    refused(cycle, &["a cycle: x after z after x", "nothing is moved"]);
    let unknown = object("x", &[0], &[7, 2]) + &object("w", &[], &[1]);
    refused(unknown, &["2 faults", "no host is called h7", "`has` names no host"]);
    // What only the servers know is asked before anything moves as well.
    let missing = good.clone() + &object("gone", &[0, 1], &[2]);
    refused(missing, &["[object.gone] h0:", "[object.gone] h1:"]);
    refused(good.clone() + &object("y", &[0, 1], &[2]), &["[object.y] h1: it has a file of 7"]);
    refused(good + "size = \"5B\"\n", &["[object.x] `size`: says 5 B, and h0 has a file of 1000"]);
    let output = sites.world.run("client", &["plan", "nowhere.toml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_object_that_comes_after_another_waits_for_it_and_may_come_from_where_that_went() {
    let sites = Sites::new(3, 100);
    let x = sites.object("x", 1_000_000, &[0]);
    let on = "[object.on]\npath = \"x\"\nhas = [\"h1\"]\nwants = [\"h2:copy\"]\nafter = [\"x\"]\n";
    sites.plan(&(object("x", &[0], &[1]) + on));
    let output = sites.run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(fs::read(sites.path(2, "copy")).unwrap(), x);
    let all = events(&output);
    let first = about(&all, "done", "x", "h1")["end"].as_f64().unwrap();
    assert!(about(&all, "started", "on", "h2")["begin"].as_f64().unwrap() >= first);
}

#[test]
fn a_host_that_vanishes_is_named_what_waits_for_it_does_not_begin_and_the_rest_finishes() {
    let mut sites = Sites::new(4, 20);
    sites.object("lost", 12_000_000, &[0]);
    let both = sites.object("both", 8_000_000, &[0, 1]);
    let safe = sites.object("safe", 4_000_000, &[1]);
    let after = object("late", &[1], &[3]) + "after = [\"lost\"]\n";
    sites.object("late", 1_000, &[1]);
    let all = object("lost", &[0], &[2])
        + &object("both", &[0, 1], &[3])
        + &object("safe", &[1], &[2])
        + &after;
    sites.plan(&all);
    let running = sites.command(&["--json", "--retry-for", "4s"]).spawn().unwrap();
    wait_for("a part of it", || common::size_of(&sites.path(2, "lost.gtp-part")) > 0);
    sites.servers[0].kill();
    let output = running.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(12), "{text}");
    assert_eq!(fs::read(sites.path(3, "both")).unwrap(), both);
    assert_eq!(fs::read(sites.path(2, "safe")).unwrap(), safe);
    let told = events(&output);
    let error = about(&told, "error", "lost", "h2");
    assert!(error["message"].as_str().unwrap().contains(&sites.addresses[0]), "{error}");
    let late = about(&told, "error", "late", "h3");
    assert_eq!(late["message"], "not begun: lost did not reach h2");
    assert!(text.contains("lost to h2:"), "{text}");
    let warned = about(&told, "warning", "both", "h3");
    assert!(warned["message"].as_str().unwrap().contains(&sites.addresses[0]), "{warned}");
}

#[test]
fn a_sink_that_vanishes_is_named_and_the_others_get_theirs() {
    let mut sites = Sites::new(3, 20);
    let x = sites.object("x", 8_000_000, &[0]);
    sites.plan(&object("x", &[0], &[1, 2]));
    let running = sites.command(&["--json", "--retry-for", "3s"]).spawn().unwrap();
    wait_for("a part of it", || common::size_of(&sites.path(1, "x.gtp-part")) > 0);
    sites.servers[1].kill();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(12), "{}", said(&output));
    assert_eq!(fs::read(sites.path(2, "x")).unwrap(), x);
    let told = events(&output);
    let error = about(&told, "error", "x", "h1");
    assert!(error["message"].as_str().unwrap().contains(&sites.addresses[1]), "{error}");
}

#[test]
fn a_plan_that_is_killed_and_run_again_moves_nothing_complete_twice() {
    let sites = Sites::new(3, 20);
    let (small, large) = (sites.object("a", 100_000, &[0]), sites.object("b", 10_000_000, &[0]));
    sites.plan(&(object("a", &[0], &[1]) + &object("b", &[0], &[2])));
    let mut running = sites.command(&["--json"]).spawn().unwrap();
    wait_for("the first", || sites.path(1, "a").exists());
    wait_for("a part of the second", || {
        common::size_of(&sites.path(2, "b.gtp-part")) > 0 && {
            let part = fs::metadata(sites.path(2, "b.gtp-part"));
            part.is_ok_and(|part| std::os::unix::fs::MetadataExt::blocks(&part) > 6_000)
        }
    });
    running.kill().unwrap();
    running.wait().unwrap();
    let output = sites.run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(fs::read(sites.path(1, "a")).unwrap(), small);
    assert_eq!(fs::read(sites.path(2, "b")).unwrap(), large);
    let all = events(&output);
    assert_eq!(about(&all, "done", "a", "h1")["files_written"], 0);
    let resumed = about(&all, "done", "b", "h2")["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 2_000_000, "{resumed}");
}

#[test]
fn a_server_fetches_for_nobody_unless_it_was_started_so() {
    let sites = Sites::new(1, 100);
    sites.object("x", 1_000, &[0]);
    fs::create_dir(sites.world.path("plain")).unwrap();
    let lists = ["c0", "plain"].map(|home| sites.world.path(home).join("authorized_keys"));
    fs::copy(&lists[0], &lists[1]).unwrap();
    let server = sites.world.serve("plain", &["--writable", "--daemon", "off"]);
    let more = format!(
        "[host.plain]\nurl = \"{}\"\nkey = \"{}\"\nin = \"1Gbit\"\nout = \"1Gbit\"\n",
        server.url(""),
        server.fingerprint
    );
    sites.plan(&(more + "[object.x]\nhas = [\"h0\"]\nwants = [\"plain\"]\n"));
    let output = sites.run(&[]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("serve --third-party"), "{}", said(&output));
}

/// Six hosts of 12 Mbit/s each way and twelve objects, three of which two or three hosts have.
#[test]
fn all_transfers_of_a_plan_end_well_and_their_bytes_do_not_pass_its_host() {
    if !require_root() {
        return;
    }
    let mesh = Mesh::new(7);
    let sites = Sites::at(6, 12, Some(&mesh));
    let mut objects = String::new();
    let mut total = 0;
    for n in 0..12 {
        let (name, size) = (format!("o{n:02}"), 3_000_000 + 250_000 * n);
        let has: &[usize] = match n {
            0 => &[0, 1],
            5 => &[2, 3, 4],
            9 => &[3, 5],
            _ => &[n % 6],
        };
        let to = (n + 2 + n / 6) % 6;
        let wants = [if has.contains(&to) { (to + 1) % 6 } else { to }];
        sites.object(&name, size, has);
        objects += &object(&name, has, &wants);
        total += size as u64;
    }
    sites.plan(&objects);
    let before = mesh.moved(6);
    let output = mesh.at(6, &sites.command(&["--json"])).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let through = mesh.moved(6) - before;
    assert!(through < total / 20, "{through} of {total} bytes pass the host of the plan");
    let all = events(&output);
    let done: Vec<&Value> = all.iter().filter(|event| event["event"] == "done").collect();
    assert_eq!(done.len(), 12);
    // How near they come to what was foreseen is measured by `gtp-measure run plan`.
    for event in done {
        assert!(event["planned_end"].as_f64().unwrap() > 0.0, "{event}");
    }
}
