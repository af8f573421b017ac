//! Users without a home, or with one that keeps nothing.

mod common;

use std::process::Output;

use common::World;

/// Runs the command with this home and no other place for configuration.
fn at_home(world: &World, home: Option<&str>, args: &[&str]) -> Output {
    let mut gtp = world.gtp("nowhere", args);
    gtp.env_remove("GTP_CONFIG_DIR");
    if let Some(home) = home {
        gtp.env("HOME", home);
    }
    gtp.output().unwrap()
}

#[test]
fn a_client_whose_key_cannot_be_kept_has_one_in_memory_and_says_so_once() {
    let world = World::new();
    world.export("t/a", 1_000);
    let server = world.serve("server", &["--public"]);
    let (root, tree, dir) = (server.url(""), server.url("t"), server.url("t/"));
    let accept = ["--accept-new", "--fingerprint", &server.fingerprint];
    // In none of them anything can be made.
    for (number, home) in ["/dev/null", "/proc"].into_iter().enumerate() {
        let (got, synced) = (format!("got{number}"), format!("synced{number}"));
        for trust in [&accept[..1], &accept[1..]] {
            for words in [&["ls", &root][..], &["get", &tree, &got], &["sync", &dir, &synced]] {
                let ended = at_home(&world, Some(home), &[words, trust].concat());
                let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                assert_eq!(ended.status.code(), Some(0), "{home} {words:?}: {said}");
                let warnings = said.matches("key is for this command alone").count();
                assert_eq!(warnings, 1, "{home} {words:?}: {said}");
                assert!(said.matches("is not remembered").count() <= 1, "{said}");
            }
        }
        assert!(world.path(&got).join("a").exists() && world.path(&synced).join("a").exists());
    }
}

#[test]
fn a_key_that_is_there_and_cannot_be_read_is_no_refused_authentication() {
    let world = World::new();
    let server = world.serve("server", &["--public"]);
    std::fs::create_dir_all(world.path("client/identity")).unwrap();
    let ended = world.run("client", &["ls", &server.url(""), "--accept-new"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("not a regular file"), "{said}");
}

#[test]
fn a_home_that_the_environment_does_not_name_is_looked_up() {
    let world = World::new();
    let own = format!(":{}:", rustix::process::geteuid().as_raw());
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let user = users.lines().find(|line| line.contains(&format!(":x{own}")));
    let Some(home) = user.and_then(|line| line.split(':').nth(5)) else {
        eprintln!("skipped: this user is not in the list of users");
        return;
    };
    let shown = at_home(&world, None, &["config"]);
    assert_eq!(shown.status.code(), Some(0));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("{home}/.config/gtp")), "{shown}");
}
