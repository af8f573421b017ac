//! What every OpenSSH server of these tests needs: its configuration and its keys.

use std::path::Path;
use std::process::Command;

/// The configuration of a server, with `PORT`, `ADDRESS` and `DIR/` to be replaced.
pub const CONFIG: &str = "Port PORT
ListenAddress ADDRESS
HostKey DIR/host
AuthorizedKeysFile DIR/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
";

/// Makes the keys of the server and of its user, and the directory that OpenSSH wants.
pub fn prepare(dir: &Path) {
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
        assert!(keygen.status().expect("ssh-keygen is needed").success());
    }
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
}

/// The name of the user who runs the tests.
pub fn user() -> String {
    let user = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(user.stdout).unwrap().trim().to_owned()
}
