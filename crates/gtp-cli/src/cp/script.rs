//! What is said on ssh's command line: a script that finds the far end's program, or installs it.
//!
//! The login shell may be any: sh, csh and fish agree on what stands between single quotes, as long
//! as it has no single quote, backslash, exclamation mark or end of line. Nothing that a user or a
//! file is called ever stands there; paths go over the pipe.

/// Finds the program, says so and becomes it, or says that there is none, or only another one of
/// that name.
pub fn start() -> String {
    whole(&format!(
        "o=absent; for g in \"{CACHED}\" gtp \"$HOME/.local/bin/gtp\"; do \
         if command -v \"$g\" >/dev/null 2>&1; then \
         case \"$(\"$g\" --version </dev/null 2>/dev/null)\" in \"gtp \"[0-9]*.[0-9]*) \
         echo; echo \"gtp-hello/1 found\"; exec \"$g\" far-end;; *) o=foreign;; esac; fi; done; \
         echo; echo \"gtp-hello/1 $o $(uname -sm)\"",
    ))
}

/// Finds the program in this release, or takes it from the pipe: `length` bytes with this SHA-256.
/// It is put into place whole, or not at all, once it has shown that it runs there.
pub fn install(system: &str, length: u64, sha256: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    whole(&format!(
        "for g in \"{CACHED}\" gtp \"$HOME/.local/bin/gtp\"; do \
         if test \"$(\"$g\" --version </dev/null 2>/dev/null)\" = \"gtp {version}\"; then \
         echo; echo \"gtp-hello/1 found\"; exec \"$g\" far-end; fi; done; \
         d=$PWD; m=$(uname -sm); if test \"$m\" = \"{system}\"; then :; else \
         echo; echo \"gtp-hello/1 unfit $m\"; exit 1; fi; \
         u=$(umask); umask 077; mkdir -p \"{CACHE}\" && cd \"{CACHE}\" || exit 1; t=new.$$; \
         trap \"rm -f $t\" EXIT; trap \"exit 1\" HUP INT PIPE TERM; \
         echo; echo \"gtp-hello/1 send\"; head -c {length} >$t; s=$(sha256sum <$t); \
         if test \"${{s%% *}}\" = {sha256}; then :; else echo \"gtp-hello/1 damaged\"; exit 1; fi; \
         chmod 755 $t; if ./$t --version </dev/null >/dev/null; then mv -f $t gtp; else \
         echo \"gtp-hello/1 unfit $m\"; exit 1; fi; \
         echo \"gtp-hello/1 found\"; umask $u; cd \"$d\"; \
         exec \"{CACHED}\" far-end",
    ))
}

/// A script as one word of any shell.
fn whole(script: &str) -> String {
    format!("exec sh -c '{script}'")
}

/// Where a program is put that is sent to the far end.
pub const CACHE: &str = concat!("$HOME/.cache/gtp/", env!("CARGO_PKG_VERSION"));
const CACHED: &str = concat!("$HOME/.cache/gtp/", env!("CARGO_PKG_VERSION"), "/gtp");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_reads_the_scripts_as_one_word() {
        for script in [start(), install("Linux x86_64", 7, &"0".repeat(64))] {
            let inner = script.strip_prefix("exec sh -c '").and_then(|s| s.strip_suffix('\''));
            let inner = inner.expect("a command with one quoted word");
            assert!(!inner.contains(['\'', '\\', '!', '\n']), "{inner}");
        }
    }
}
