//! Few descriptors: a server serves as many as it can, and the others a little later.

mod common;

use std::process::{Command, Stdio};

use common::{Serving, World};

/// A server that may have so many descriptors open, and not one more.
fn serve_within(world: &World, descriptors: u32) -> Serving {
    let served = world.gtp("server", &[]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]);
    command.arg(served.get_program());
    command.args(["serve", "export", "--public", "--json", "--listen", "127.0.0.1:0"]);
    command.env_clear().env("GTP_CONFIG_DIR", world.path("server"));
    command.current_dir(world.path("."));
    Serving::start(command)
}

#[test]
fn clients_of_a_server_with_few_descriptors_all_get_all_files() {
    let world = World::new();
    let files: Vec<String> = (0..300).map(|n| format!("d{}/f{n}", n % 7)).collect();
    let contents: Vec<Vec<u8>> = files.iter().map(|name| world.export(name, 200)).collect();
    let server = serve_within(&world, 256);
    let url = server.url("");
    let gets: Vec<_> = (0..12)
        .map(|n| {
            let to = format!("copy{n}");
            let args = ["get", &url, &to, "--fingerprint", &server.fingerprint];
            let mut command = world.gtp("client", &args);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (n, get) in gets.into_iter().enumerate() {
        let output = get.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        for (name, content) in files.iter().zip(&contents) {
            let copy = world.path(&format!("copy{n}")).join(name);
            assert_eq!(std::fs::read(&copy).unwrap(), *content, "{}", copy.display());
        }
    }
}

#[test]
fn a_server_raises_its_limit_of_descriptors_to_what_it_may_have() {
    let world = World::new();
    let served = world.gtp("server", &[]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 100; ulimit -H -n 200; echo $$; exec \"$0\" \"$@\""]);
    command.arg(served.get_program()).args(["serve", "export", "--public", "--listen"]);
    command.arg("127.0.0.1:0").env_clear().env("GTP_CONFIG_DIR", world.path("server"));
    command.current_dir(world.path(".")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(line.contains(" serving export on "), "{line}");
    let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = open.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["200", "200"]);
}

#[test]
fn with_too_few_descriptors_every_command_says_so_and_ends() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    let url = server.url("a");
    let socket = world.path("run/gtpd.sock").display().to_string();
    let gtp = env!("CARGO_BIN_EXE_gtp");
    for words in [
        &[env!("CARGO_BIN_EXE_gtpd"), "--socket", &socket][..],
        &[gtp, "sync", "export/", "out"],
        &[gtp, "get", &url, "got", "--accept-new"],
        &[gtp, "ls", &url, "--accept-new"],
        &[gtp, "serve", "export", "--public", "--listen", "127.0.0.1:0"],
    ] {
        for few in [12, 16, 23] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {few}; exec \"$0\" \"$@\"")]).args(words);
            command.env_clear().env("GTP_CONFIG_DIR", world.path("client"));
            let ended = command.current_dir(world.path(".")).output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(1), "{words:?}: {said}");
            assert!(said.contains("ulimit -n"), "{words:?}: {said}");
        }
    }
}
