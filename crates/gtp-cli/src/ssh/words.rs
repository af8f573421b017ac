//! What the words of an `ssh` command line mean, as far as `gtp ssh` must know.
//!
//! ssh's own reading is followed: options, the host, more options, the command. Options that only
//! say how to log in go to the ssh that starts the far end. Some ask for what is ssh's alone, a
//! terminal for instance; then the whole line is ssh's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A command line of ssh's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Options that say how to log in.
    pub options: Vec<OsString>,
    /// Whom to log in to, as it was written.
    pub host: OsString,
    /// The words of the command; of a subsystem, its name.
    pub command: Vec<OsString>,
    /// Whether the command is the name of a subsystem.
    pub is_subsystem: bool,
    /// Whether the command's standard input is empty.
    pub has_no_input: bool,
}

/// Why a command line is ssh's alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plain {
    /// It asks for nothing that GTP could carry: no command, or another service of ssh's.
    Silent,
    /// It has a command, and an option that only ssh knows how to obey.
    Because(String),
}

/// Options of ssh's that take a value.
const VALUED: &[u8] = b"bceilmopBDEFIJLPRSwOQW";
/// Options of ssh's without one.
const FLAGS: &[u8] = b"1246afgknqstvxyACGKMNTVXY";
/// Options by which ssh does something else than to run a command.
const OTHER_SERVICES: &[u8] = b"GNOQVW";

impl Words {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// [`Plain`] if it is ssh's alone.
    pub fn of(line: &[OsString]) -> Result<Words, Plain> {
        let mut words = Words::default();
        let mut why = None;
        let mut rest = line;
        let ended = words.take_options(&mut rest, &mut why)?;
        let [host, after @ ..] = rest else { return Err(Plain::Silent) };
        words.host.clone_from(host);
        rest = after;
        if !ended {
            words.take_options(&mut rest, &mut why)?;
        }
        words.command = rest.to_vec();
        match why {
            _ if words.command.is_empty() => Err(Plain::Silent),
            Some(why) => Err(Plain::Because(why)),
            None => Ok(words),
        }
    }

    /// The command as a shell reads it: ssh joins its words with spaces.
    pub fn line(&self) -> Vec<u8> {
        let words: Vec<&[u8]> = self.command.iter().map(|word| word.as_bytes()).collect();
        words.join(&b' ')
    }

    /// What the far end is told to start: a command line, or nothing for a subsystem, whose name it
    /// has had before.
    pub fn start(&self) -> Vec<u8> {
        match self.is_subsystem {
            true => Vec::new(),
            false => self.line(),
        }
    }

    /// Takes options off the front; returns whether `--` has ended them.
    fn take_options(
        &mut self,
        rest: &mut &[OsString],
        why: &mut Option<String>,
    ) -> Result<bool, Plain> {
        while let [word, after @ ..] = *rest {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                *rest = after;
                return Ok(true);
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                break;
            }
            *rest = after;
            self.take_word(&bytes[1..], rest, why)?;
        }
        Ok(false)
    }

    /// Takes the letters of one word, and the next word if the last letter needs a value.
    fn take_word(
        &mut self,
        letters: &[u8],
        rest: &mut &[OsString],
        why: &mut Option<String>,
    ) -> Result<(), Plain> {
        for (at, &letter) in letters.iter().enumerate() {
            if OTHER_SERVICES.contains(&letter) {
                return Err(Plain::Silent);
            }
            if FLAGS.contains(&letter) {
                self.take_flag(letter, why);
                continue;
            }
            if !VALUED.contains(&letter) {
                // ssh says what it thinks of it.
                return Err(Plain::Silent);
            }
            let value = match (&letters[at + 1..], *rest) {
                ([], [value, after @ ..]) => {
                    *rest = after;
                    value.clone()
                }
                ([], []) => return Err(Plain::Silent),
                (value, _) => OsString::from_vec(value.to_vec()),
            };
            if letter == b'o' && is_for_ssh(&value) {
                *why = Some(format!("-o {} is ssh's alone", value.to_string_lossy()));
            }
            self.options.extend([format!("-{}", letter as char).into(), value]);
            break;
        }
        Ok(())
    }

    fn take_flag(&mut self, letter: u8, why: &mut Option<String>) {
        match letter {
            b's' => self.is_subsystem = true,
            b'n' => self.has_no_input = true,
            b't' => *why = Some("a terminal (-t) is ssh's alone".into()),
            b'f' => *why = Some("going to the background (-f) is ssh's alone".into()),
            _ => self.options.push(format!("-{}", letter as char).into()),
        }
    }
}

/// Whether a setting asks for something that only ssh does.
fn is_for_ssh(setting: &OsStr) -> bool {
    let text = setting.to_string_lossy().to_ascii_lowercase();
    let mut words = text.split(['=', ' ', '\t', '"']).filter(|word| !word.is_empty());
    let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match name {
        "requesttty" => ["yes", "true", "force"].contains(&value),
        "remotecommand" => value != "none",
        "sessiontype" => value != "default",
        "forkafterauthentication" | "stdinnull" => !["no", "false"].contains(&value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Words, Plain> {
        Words::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[track_caller]
    fn expect(line: &str, options: &str, host: &str, command: &str) -> Words {
        let words = read(line).unwrap_or_else(|plain| panic!("{line}: {plain:?}"));
        let shown = words.options.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(shown.join(" "), options, "{line}");
        assert_eq!((words.host.to_str().unwrap(), &words.line()[..]), (host, command.as_bytes()));
        words
    }

    #[test]
    fn the_lines_that_rsync_git_borg_and_sftp_write_are_read_as_ssh_reads_them() {
        expect("-l me host rsync --server . x", "-l me", "host", "rsync --server . x");
        expect(
            "-o SendEnv=GIT_PROTOCOL -p2222 me@host git-upload-pack 'x'",
            "-o SendEnv=GIT_PROTOCOL -p 2222",
            "me@host",
            "git-upload-pack 'x'",
        );
        expect("-4vTx host a -b -- c", "-4 -v -T -x", "host", "a -b -- c");
        let sftp = expect(
            "-oForwardX11=no -l me -s -- host sftp",
            "-o ForwardX11=no -l me",
            "host",
            "sftp",
        );
        assert!(sftp.is_subsystem && !sftp.has_no_input && sftp.start().is_empty());
        let sftp = expect("me@host -s sftp", "", "me@host", "sftp");
        assert!(sftp.is_subsystem);
        let empty = expect("-nq host -p 22 -- -x", "-q -p 22", "host", "-x");
        assert!(empty.has_no_input && !empty.is_subsystem && empty.start() == b"-x");
    }

    #[test]
    fn what_only_ssh_can_do_is_left_to_it_and_named_where_there_is_a_command() {
        for line in [
            "",
            "host",
            "-l me host",
            "-V",
            "-G host x",
            "-N host x",
            "-W a:1 host",
            "-p",
            "-O check host",
            "-z host x",
            "host -p",
        ] {
            assert_eq!(read(line), Err(Plain::Silent), "{line}");
        }
        for line in [
            "-t host x",
            "-f host x",
            "host -t x",
            "-o RequestTTY=force host x",
            "-o RequestTTY=true host x",
            "-oREQUESTTTY=Yes host x",
            "-o StdinNull=true host x",
            "-oRemoteCommand=x host y",
            "-o sessiontype=none host x",
        ] {
            assert!(matches!(read(line), Err(Plain::Because(_))), "{line}: {:?}", read(line));
        }
        for line in [
            "-o RequestTTY=no host x",
            "-o RequestTTY=False host x",
            "-o RequestTTY=auto host x",
            "-o StdinNull=false host x",
            "-o RemoteCommand=none host x",
            "-oUser=t host x",
        ] {
            assert!(read(line).is_ok(), "{line}");
        }
    }
}
