//! A process that ends with its case, and whose failure is one of its case.

use std::io::Read;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

/// It is killed when it is let go of.
pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
}

impl Running {
    /// Starts a command, which is called by this name where it fails.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Running> {
        let child = command.spawn().with_context(|| format!("{name} cannot start"))?;
        Ok(Running { child, name: name.to_owned() })
    }

    /// Waits until it has ended by itself, and well. What it says to a piped standard error is
    /// said if not, and must fit into the pipe.
    pub(crate) fn finish(mut self) -> Result<()> {
        let ended = self.child.wait()?;
        let mut said = String::new();
        if let Some(mut words) = self.child.stderr.take() {
            words.read_to_string(&mut said)?;
        }
        ensure!(ended.success(), "{}: {ended}: {}", self.name, said.trim());
        Ok(())
    }

    /// Ends what must not have ended by itself.
    pub(crate) fn end(mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "{} has ended too soon: {ended:?}", self.name);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        Running::start("it", command.args(["-c", script]).stderr(Stdio::piped())).unwrap()
    }

    #[test]
    fn who_fails_is_named_with_its_reason() {
        shell("echo nothing >&2").finish().unwrap();
        let said = shell("echo why >&2; exit 3").finish().unwrap_err().to_string();
        assert!(said.starts_with("it: exit status: 3: why"), "{said}");
    }

    #[test]
    fn who_is_let_go_of_is_no_longer_there() {
        let running = shell("exec sleep 60");
        let place = std::path::PathBuf::from(format!("/proc/{}", running.child.id()));
        assert!(place.exists());
        drop(running);
        assert!(!place.exists());
    }
}
