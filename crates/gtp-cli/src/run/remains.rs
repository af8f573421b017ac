//! What remains where a pump is killed, for the one after it: where programs listen, and that there
//! are programs.
//!
//! Both are descriptors, which whoever keeps the pump holds as well: a file in memory with a line
//! for each listener, and a pipe. A program holds the pipe's other end, so that its end is seen
//! without asking for processes, and by whichever pump there is.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};

use super::listeners::Listener;

/// It.
#[derive(Debug)]
pub struct Remains {
    listeners: File,
    /// Lines in that file.
    noted: AtomicUsize,
    programs: File,
}

/// Most bytes that are read of what another pump has left.
const LEFT_MOST: u64 = 1 << 20;
/// Lines after which it is time to leave out those of listeners that are none any more.
const NOTED_MOST: usize = 8_192;

impl Remains {
    /// Of no pump yet.
    ///
    /// # Errors
    /// Where there are no descriptors, or the system does not show its own (`/proc`).
    pub fn new() -> io::Result<Remains> {
        let listeners = memfd_create("gtp-listeners", MemfdFlags::CLOEXEC)?;
        let (programs, _) = io::pipe()?;
        Remains::of(&listeners, &programs)
    }

    /// What another process has passed on, by its word for it.
    ///
    /// # Errors
    /// Where there is nothing of the kind.
    pub fn adopt(word: &str) -> io::Result<Remains> {
        let numbers = word.split_once(',').and_then(|(listeners, programs)| {
            Some((listeners.parse().ok()?, programs.parse().ok()?))
        });
        let (listeners, programs) = numbers.ok_or(io::ErrorKind::InvalidInput)?;
        Remains::opened(path_of(listeners), path_of(programs))
    }

    fn of(listeners: &OwnedFd, programs: &PipeReader) -> io::Result<Remains> {
        Remains::opened(path_of(listeners.as_raw_fd()), path_of(programs.as_raw_fd()))
    }

    fn opened(listeners: PathBuf, programs: PathBuf) -> io::Result<Remains> {
        let listeners = File::options().read(true).append(true).open(listeners)?;
        // Opening a pipe to read waits for nobody, since this process has it open already.
        let programs = File::open(programs)?;
        ioctl_fionbio(&programs, true)?;
        Ok(Remains { listeners, noted: AtomicUsize::new(0), programs })
    }

    /// Lets what this process starts have it; the word by which that finds it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pass_on(&self) -> io::Result<String> {
        let pass = |fd: BorrowedFd<'_>| fcntl_setfd(fd, FdFlags::empty());
        pass(self.listeners.as_fd())?;
        pass(self.programs.as_fd())?;
        Ok(format!("{},{}", self.listeners.as_raw_fd(), self.programs.as_raw_fd()))
    }

    /// Notes that a program listens.
    pub fn note(&self, listener: &Listener) {
        // Where it cannot be noted, the next pump does not know of it.
        let _ = (&self.listeners).write_all(listener.line().as_bytes());
        self.noted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether so many were noted that most are likely to be none any more.
    pub fn are_many(&self) -> bool {
        self.noted.load(Ordering::Relaxed) >= NOTED_MOST
    }

    /// Where programs listened, by all that was noted; some of them may not any more.
    pub fn listeners(&self) -> Vec<Listener> {
        let mut text = String::new();
        // What is not text, or was written in part, is nobody's loss but the listener's.
        let _ = (&self.listeners).take(LEFT_MOST).read_to_string(&mut text);
        text.lines().filter_map(Listener::parse).collect()
    }

    /// Notes these in place of all others.
    pub fn note_only<'a>(&self, listeners: impl Iterator<Item = &'a Listener>) {
        let _ = self.listeners.set_len(0);
        self.noted.store(0, Ordering::Relaxed);
        listeners.for_each(|listener| self.note(listener));
    }

    /// What a program holds as long as it is there.
    ///
    /// # Errors
    /// Where there are no descriptors.
    pub fn for_a_program(&self) -> io::Result<OwnedFd> {
        let path = path_of(self.programs.as_raw_fd());
        Ok(File::options().write(true).open(path)?.into())
    }

    /// Whether there are programs.
    pub fn has_programs(&self) -> bool {
        // None has anything to say. A pipe that nobody holds has an end; else there is nothing yet.
        rustix::io::read(&self.programs, &mut [0_u8; 4_096]) != Ok(0)
    }
}

fn path_of(descriptor: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(port: u16) -> Listener {
        let at = format!("[::]:{port}").parse().unwrap();
        Listener { at, inode: port.into(), takes_v4: true }
    }

    #[test]
    fn the_next_pump_knows_the_listeners_and_that_there_are_programs() {
        let kept = Remains::new().unwrap();
        let word = kept.pass_on().unwrap();
        let first = Remains::adopt(&word).unwrap();
        assert!(!first.has_programs());
        let program = first.for_a_program().unwrap();
        first.note(&listener(1));
        first.note(&listener(2));
        drop(first);
        let second = Remains::adopt(&word).unwrap();
        assert_eq!(second.listeners(), [listener(1), listener(2)]);
        assert!(second.has_programs());
        drop(program);
        assert!(!second.has_programs() && !kept.has_programs());
        second.note_only([listener(2)].iter());
        second.note(&listener(3));
        assert_eq!(Remains::adopt(&word).unwrap().listeners(), [listener(2), listener(3)]);
        (0..NOTED_MOST).for_each(|_| second.note(&listener(4)));
        assert!(second.are_many());
        second.note_only([].iter());
        assert!(!second.are_many() && Remains::adopt(&word).unwrap().listeners().is_empty());
    }

    #[test]
    fn a_program_that_writes_to_what_it_holds_is_still_one_program() {
        let remains = Remains::new().unwrap();
        let program = File::from(remains.for_a_program().unwrap());
        (&program).write_all(&[0; 1_000]).unwrap();
        assert!(remains.has_programs() && remains.has_programs());
        drop(program);
        assert!(!remains.has_programs());
    }

    #[test]
    fn what_is_no_list_holds_no_listeners() {
        let remains = Remains::new().unwrap();
        (&remains.listeners).write_all(b"\xff\n[::]:1 1 both\n").unwrap();
        assert_eq!(remains.listeners(), []);
        for word in ["", "1", "x,y", "-1,-2"] {
            assert!(Remains::adopt(word).is_err(), "{word}");
        }
    }
}
