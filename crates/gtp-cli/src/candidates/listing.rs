//! The names in a directory behind a login, by the login's own `ls`.
//!
//! The user waits at a prompt: ssh may ask nothing, and all of it has a time limit. The directory
//! goes over the pipe, so that no shell reads it. What the far end says may be anything.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cp::operand::Login;

/// The names, those of directories with a slash at the end. `dir` ends in a slash, or is empty for
/// where the login begins. No answer in time is no names.
pub async fn names(ssh: &str, login: &Login, dir: &str) -> Vec<String> {
    let listed = timeout(LIMIT, listed(ssh, login, dir)).await;
    read(&listed.ok().flatten().unwrap_or_default())
}

/// What the far end writes. ssh ends with this.
async fn listed(ssh: &str, login: &Login, dir: &str) -> Option<Vec<u8>> {
    if dir.contains(['\n', '\0']) {
        return None;
    }
    let mut words = ssh.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words).args(["-T", "-o", "BatchMode=yes", "-o", CONNECT_LIMIT]);
    command.arg(login.for_ssh()).arg(SCRIPT);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().ok()?;
    let (mut to, from) = (child.stdin.take()?, child.stdout.take()?);
    to.write_all(format!("{dir}\n").as_bytes()).await.ok()?;
    drop(to);
    let mut said = Vec::new();
    from.take(SAID_MAX).read_to_end(&mut said).await.ok()?;
    Some(said)
}

/// The names in what the far end has written: what follows the mark, line by line.
fn read(said: &[u8]) -> Vec<String> {
    let mut lines = said.split(|&b| b == b'\n').skip_while(|line| *line != MARK.as_bytes());
    // The mark itself.
    lines.next();
    let name = |line: &[u8]| String::from_utf8(line.to_vec()).ok();
    let fits = |name: &String| {
        let bare = name.strip_suffix('/').unwrap_or(name);
        !bare.is_empty() && !bare.contains('/')
    };
    lines.filter_map(name).filter(fits).collect()
}

/// One word for any login shell (`cp::script`): it may hold no single quote, backslash,
/// exclamation mark or end of line.
const SCRIPT: &str = "exec sh -c 'IFS= read -r d; case \"$d\" in \"~/\"*) d=$HOME/${d#\"~/\"};; \
    esac; CDPATH=; cd && cd -- \"${d:-.}\" && echo && echo gtp-names/1 && exec ls -1ApL'";

/// What stands before the names. A login may say something before that.
const MARK: &str = "gtp-names/1";

/// Time for all of it.
const LIMIT: Duration = Duration::from_secs(3);

/// Time for the connection, in ssh's words.
const CONNECT_LIMIT: &str = "ConnectTimeout=2";

/// Bytes that are read; what is beyond has no use at a prompt.
const SAID_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_mark_and_are_single_names() {
        let said = b"Welcome\ngtp-names/1 not\n\ngtp-names/1\na b\ndir/\n\nx/y\n../\n\xff\nlast";
        assert_eq!(read(said), ["a b", "dir/", "../", "last"]);
        assert!(read(b"a\nb\n").is_empty() && read(b"").is_empty());
    }

    #[test]
    fn every_shell_reads_the_script_as_one_word() {
        let inner = SCRIPT.strip_prefix("exec sh -c '").and_then(|s| s.strip_suffix('\''));
        assert!(!inner.unwrap().contains(['\'', '\\', '!', '\n']));
    }
}
