//! The far end of `gtp ssh`: one command, and its standard streams.
//!
//! It takes the one client whose key it was told, and runs what that client says first, once, by
//! the login's shell as sshd does. When the near end goes before the command has ended, the
//! command is hung up.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp::{Caller, Line, Listening, Stream, StreamReader, StreamWriter};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frames::{self, End, Frame, INPUT_MOST, Output};

/// What the client of a far end wants to be run, as far as it was said before the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The command that the client will say.
    Command,
    /// This program, by its path.
    Program(String),
}

/// Where systems have the server of a subsystem; `None` if there is none here.
pub fn subsystem(name: &str) -> Option<String> {
    let is_there = |path: &&&str| PathBuf::from(path).is_file();
    let found = SFTP_SERVERS.iter().filter(|_| name == "sftp").find(is_there);
    found.map(|path| (*path).to_owned())
}

/// OpenSSH's sftp-server as Debian, Fedora, the BSDs, Arch, SUSE and others place it.
const SFTP_SERVERS: [&str; 6] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/lib/sftp-server",
    "/usr/local/libexec/sftp-server",
];

/// Serves until the command has ended and its client knows, or until `near_end` says that the near
/// end is gone.
pub async fn serve(listening: Listening, wanted: Wanted, near_end: impl Future<Output = ()>) {
    let mut near_end = std::pin::pin!(near_end);
    let begun = tokio::select! {
        begun = begin(listening) => begun,
        () = &mut near_end => None,
    };
    let Some(Begun { reader, writer, line, said }) = begun else { return };
    let command = match wanted {
        Wanted::Command => said,
        Wanted::Program(path) => path.into_bytes(),
    };
    let (tell, telling) = teller(writer);
    let (mut running, pipes) = match Running::start(command, &tell) {
        Ok(started) => started,
        Err(error) => {
            let text = format!("gtp: cannot run the login shell: {error}\n").into_bytes();
            say(&tell, &Frame::Output(Output::Error, text)).await;
            say(&tell, &Frame::End(End::Code(1))).await;
            return finish(tell, telling, &line, near_end).await;
        }
    };
    let carried = tokio::select! {
        told = carry(&mut running, pipes, reader, tell.clone()) => told,
        () = line.over() => false,
        () = &mut near_end => false,
    };
    if !carried {
        line.abort();
        return running.hang_up().await;
    }
    finish(tell, telling, &line, near_end).await;
}

/// A client that has said what is to run.
struct Begun {
    reader: BufReader<StreamReader>,
    writer: StreamWriter,
    line: Line,
    said: Vec<u8>,
}

/// Waits for the client's word to start. A client may connect again by another way before it says
/// it; the first word counts, and from then on nobody else is let in.
async fn begin(mut listening: Listening) -> Option<Begun> {
    let (tell, mut begun) = mpsc::channel(1);
    loop {
        tokio::select! {
            caller = listening.next() => {
                tokio::spawn(hear_first(caller?, tell.clone()));
            }
            Some(begun) = begun.recv() => return Some(begun),
        }
    }
}

async fn hear_first(caller: Caller, tell: mpsc::Sender<Begun>) {
    let Ok(stream): Result<Stream, _> = caller.accept() else { return };
    let (reader, writer, line) = stream.into_split();
    let mut reader = BufReader::with_capacity(READ_AHEAD, reader);
    if let Ok(Some(Frame::Start(said))) = frames::read(&mut reader).await {
        // If another connection was quicker, this one ends here.
        let _ = tell.send(Begun { reader, writer, line, said }).await;
    }
}

/// A command, and the tasks that pass its outputs on.
struct Running {
    child: Child,
    /// Its process group, which lasts as long as what the command has left in the background.
    group: Option<Pid>,
    outputs: [JoinHandle<()>; 2],
}

/// The command's standard input, and what ends the passing on of each output.
struct Pipes {
    stdin: ChildStdin,
    stop_out: oneshot::Sender<()>,
    stop_error: oneshot::Sender<()>,
}

impl Running {
    fn start(command: Vec<u8>, tell: &mpsc::Sender<Vec<u8>>) -> io::Result<(Running, Pipes)> {
        let mut child = start(command)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (stop_out, out_stopped) = oneshot::channel();
        let (stop_error, error_stopped) = oneshot::channel();
        let outputs = [
            tokio::spawn(pass_on(Output::Out, stdout, tell.clone(), out_stopped)),
            tokio::spawn(pass_on(Output::Error, stderr, tell.clone(), error_stopped)),
        ];
        Ok((Running { child, group, outputs }, Pipes { stdin, stop_out, stop_error }))
    }

    /// Waits until the command has ended and nobody else holds its outputs. Safe to cancel.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // Whoever the command has left behind may still write.
        for output in &mut self.outputs {
            if !output.is_finished() {
                // It does not panic, and nobody aborts it.
                let _ = output.await;
            }
        }
        status
    }

    fn has_ended(&mut self) -> bool {
        let is_gone = !matches!(self.child.try_wait(), Ok(None));
        is_gone && self.outputs.iter().all(JoinHandle::is_finished)
    }

    /// Hangs a command up whose user is gone, with all of its process group; what goes on is told
    /// to end.
    async fn hang_up(&mut self) {
        let Some(group) = self.group else { return };
        for (signal, span) in [(Signal::HUP, HANG_UP_SPAN), (Signal::TERM, Duration::ZERO)] {
            // The number of a group that has ended may be another's.
            if self.has_ended() {
                return;
            }
            // The group may end at this moment. One that was stopped hears when it goes on.
            let _ = kill_process_group(group, signal);
            let _ = kill_process_group(group, Signal::CONT);
            if timeout(span, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

/// Starts a command as sshd does: by the login's shell, in the directory and the environment of
/// the login, in a process group of its own.
fn start(command: Vec<u8>) -> io::Result<Child> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = PathBuf::from(shell.unwrap_or_else(|| "/bin/sh".into()));
    let name = shell.file_name().unwrap_or(shell.as_os_str()).to_owned();
    let mut starting = Command::new(&shell);
    starting.arg0(name).arg("-c").arg(OsString::from_vec(command)).process_group(0);
    // What the shells on the way to this program have left.
    for name in ["_", "OLDPWD", "SHLVL"] {
        starting.env_remove(name);
    }
    starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Carries the standard streams until the command has ended and nobody else holds its outputs,
/// and says how it ended. `false`: the near end breaks a rule, or is gone.
async fn carry(
    running: &mut Running,
    Pipes { stdin, stop_out, stop_error }: Pipes,
    reader: BufReader<StreamReader>,
    tell: mpsc::Sender<Vec<u8>>,
) -> bool {
    let queue = Arc::new(Queue::default());
    let feeding = tokio::spawn(feed(stdin, Arc::clone(&queue), tell.clone()));
    let status = tokio::select! {
        status = running.ended() => status,
        () = listen(reader, &queue, (stop_out, stop_error)) => return false,
    };
    feeding.abort();
    // A frame that is half said stays whole: the teller has it.
    let _ = feeding.await;
    match status {
        Ok(status) => say(&tell, &Frame::End(end_of(status))).await,
        Err(_) => false,
    }
}

fn end_of(status: ExitStatus) -> End {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(byte(code)),
        (None, signal) => End::Signal(byte(signal.unwrap_or_default())),
    }
}

/// Passes an output on to its end, or until nobody reads it: then the command's next write fails.
/// When the near end is gone, what comes is dropped, so that the end still shows.
async fn pass_on(
    which: Output,
    mut from: impl AsyncRead + Unpin,
    tell: mpsc::Sender<Vec<u8>>,
    stopped: oneshot::Receiver<()>,
) {
    let mut chunk = vec![0; CHUNK];
    let passing = async {
        while let Ok(count @ 1..) = from.read(&mut chunk).await {
            // This fails when the near end is gone.
            let _ = say(&tell, &Frame::Output(which, chunk[..count].to_vec())).await;
        }
    };
    tokio::select! {
        () = passing => {}
        Ok(()) = stopped => {}
    }
}

/// What waits for the command's standard input, [`INPUT_MOST`] bytes at most, in however many
/// frames it came.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// There are more bytes, or there is the end.
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    bytes: VecDeque<u8>,
    /// Bytes for which no [`Frame::Taken`] has been said.
    held: usize,
    has_ended: bool,
}

impl Queue {
    /// Adds bytes; `false` if there are too many.
    fn add(&self, bytes: &[u8]) -> bool {
        let mut waiting = self.waiting();
        waiting.held += bytes.len();
        if waiting.held > INPUT_MOST {
            return false;
        }
        waiting.bytes.extend(bytes);
        self.more.notify_one();
        true
    }

    /// Says that nothing follows.
    fn end(&self) {
        self.waiting().has_ended = true;
        self.more.notify_one();
    }

    /// The next bytes, of which at least one has come; `None` at the end.
    async fn next(&self) -> Option<Vec<u8>> {
        loop {
            let (bytes, has_ended) = self.first();
            if !bytes.is_empty() {
                return Some(bytes);
            }
            if has_ended {
                return None;
            }
            self.more.notified().await;
        }
    }

    /// Takes the first bytes out, as far as there are any; and whether no more come in.
    fn first(&self) -> (Vec<u8>, bool) {
        let mut waiting = self.waiting();
        let count = waiting.bytes.len().min(CHUNK);
        (waiting.bytes.drain(..count).collect(), waiting.has_ended)
    }

    /// So many bytes wait no more.
    fn taken(&self, bytes: usize) {
        self.waiting().held -= bytes;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Feeds the command's standard input. What the command does not read is dropped.
async fn feed(to: ChildStdin, queue: Arc<Queue>, tell: mpsc::Sender<Vec<u8>>) {
    let mut to = Some(to);
    while let Some(bytes) = queue.next().await {
        if let Some(input) = &mut to
            && input.write_all(&bytes).await.is_err()
        {
            to = None;
            say(&tell, &Frame::InputUnread).await;
        }
        queue.taken(bytes.len());
        let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        say(&tell, &Frame::Taken(taken)).await;
    }
}

/// Takes in what the near end says. Ends when the near end breaks a rule or is gone.
async fn listen(
    mut reader: BufReader<StreamReader>,
    queue: &Queue,
    (stop_out, stop_error): (oneshot::Sender<()>, oneshot::Sender<()>),
) {
    let (mut stop_out, mut stop_error) = (Some(stop_out), Some(stop_error));
    let mut has_input = true;
    while let Ok(Some(frame)) = frames::read(&mut reader).await {
        match frame {
            Frame::Input(bytes) if has_input => {
                if !queue.add(&bytes) {
                    return;
                }
            }
            Frame::InputEnd if has_input => {
                has_input = false;
                queue.end();
            }
            Frame::Unread(which) => {
                let stop = match which {
                    Output::Out => stop_out.take(),
                    Output::Error => stop_error.take(),
                };
                // The output may have ended.
                let _ = stop.map(|stop| stop.send(()));
            }
            Frame::Input(_)
            | Frame::InputEnd
            | Frame::Start(_)
            | Frame::Output(..)
            | Frame::Taken(_)
            | Frame::InputUnread
            | Frame::End(_) => return,
        }
    }
}

/// A writer of frames, and the queue before it.
fn teller(mut writer: StreamWriter) -> (mpsc::Sender<Vec<u8>>, JoinHandle<()>) {
    let (tell, mut told) = mpsc::channel::<Vec<u8>>(WAITING);
    let telling = tokio::spawn(async move {
        while let Some(frame) = told.recv().await {
            if writer.write_all(&frame).await.is_err() {
                return;
            }
        }
        writer.finish();
    });
    (tell, telling)
}

/// Says a frame; `false` if nobody listens any more.
async fn say(tell: &mpsc::Sender<Vec<u8>>, frame: &Frame) -> bool {
    tell.send(frame.encode()).await.is_ok()
}

/// Waits until the near end has all.
async fn finish(
    tell: mpsc::Sender<Vec<u8>>,
    telling: JoinHandle<()>,
    line: &Line,
    near_end: impl Future<Output = ()>,
) {
    drop(tell);
    let told = async {
        // It ends with the last frame, or with the connection.
        let _ = telling.await;
        line.over().await;
    };
    tokio::select! {
        () = told => {}
        () = near_end => {}
    }
}

/// Bytes that are read from the stream at a time.
const READ_AHEAD: usize = 256 << 10;

/// Bytes of a standard stream that are carried at a time: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Frames that wait for the stream.
const WAITING: usize = 4;

/// Time for a command that was hung up to end.
const HANG_UP_SPAN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_in_single_bytes_takes_no_more_memory_than_in_one_piece() {
        let queue = Queue::default();
        for _ in 0..INPUT_MOST {
            assert!(queue.add(b"x"));
        }
        assert!(queue.waiting().bytes.capacity() <= 2 * INPUT_MOST);
        assert!(!queue.add(b"x"), "one byte more breaks the rule");
    }

    #[tokio::test]
    async fn input_comes_in_order_and_ends_after_its_last_byte_and_makes_room_when_taken() {
        let queue = Queue::default();
        let content: Vec<u8> = (0..INPUT_MOST).map(|at| at.to_le_bytes()[0]).collect();
        assert!(content.chunks(100_000).all(|part| queue.add(part)));
        let mut came = queue.next().await.unwrap();
        assert!(!Queue::default().add(&vec![0; INPUT_MOST + 1]));
        queue.taken(came.len());
        assert!(queue.add(b"after"), "what was taken leaves room");
        queue.end();
        while let Some(bytes) = queue.next().await {
            came.extend(bytes);
        }
        assert!(came == [&content[..], b"after"].concat());
    }
}
