//! The far end of `gtp ssh`: one command, and its standard streams.
//!
//! It takes the one client whose key it was told, and runs what that client says first, once, by
//! the login's shell as sshd does. When the near end goes before the command has ended, the
//! command is hung up.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gtp::{Caller, Line, Listening, Stream, StreamReader, StreamWriter};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
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
    let mut child = match start(command) {
        Ok(child) => child,
        Err(error) => {
            let text = format!("gtp: cannot run the login shell: {error}\n").into_bytes();
            say(&tell, &Frame::Output(Output::Error, text)).await;
            say(&tell, &Frame::End(End::Code(1))).await;
            return finish(tell, telling, &line, near_end).await;
        }
    };
    let carried = tokio::select! {
        told = carry(&mut child, reader, tell.clone()) => told,
        () = line.over() => false,
        () = &mut near_end => false,
    };
    if !carried {
        line.abort();
        return hang_up(&mut child).await;
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
    child: &mut Child,
    reader: BufReader<StreamReader>,
    tell: mpsc::Sender<Vec<u8>>,
) -> bool {
    let (stop_out, out_stopped) = oneshot::channel();
    let (stop_error, error_stopped) = oneshot::channel();
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return false;
    };
    let out = tokio::spawn(pass_on(Output::Out, stdout, tell.clone(), out_stopped));
    let error = tokio::spawn(pass_on(Output::Error, stderr, tell.clone(), error_stopped));
    let (queue, waiting) = Queue::new();
    let feeding = tokio::spawn(feed(stdin, waiting, Arc::clone(&queue.held), tell.clone()));
    let ended = async {
        let status = child.wait().await;
        // Whoever the command has left behind may still write.
        let _ = (out.await, error.await);
        status
    };
    let heard = listen(reader, queue, (stop_out, stop_error));
    let status = tokio::select! {
        status = ended => status,
        () = heard => return false,
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
async fn pass_on(
    which: Output,
    mut from: impl AsyncRead + Unpin,
    tell: mpsc::Sender<Vec<u8>>,
    stopped: oneshot::Receiver<()>,
) {
    let mut chunk = vec![0; CHUNK];
    let passing = async {
        while let Ok(count @ 1..) = from.read(&mut chunk).await {
            if !say(&tell, &Frame::Output(which, chunk[..count].to_vec())).await {
                return;
            }
        }
    };
    tokio::select! {
        () = passing => {}
        Ok(()) = stopped => {}
    }
}

/// What waits for the command's standard input; without bytes, its end.
type Waiting = mpsc::UnboundedReceiver<Option<Vec<u8>>>;

/// Where what waits is put in, [`INPUT_MOST`] bytes at most.
struct Queue {
    to: mpsc::UnboundedSender<Option<Vec<u8>>>,
    /// Bytes that wait.
    held: Arc<AtomicUsize>,
}

impl Queue {
    fn new() -> (Queue, Waiting) {
        let (to, waiting) = mpsc::unbounded_channel();
        (Queue { to, held: Arc::default() }, waiting)
    }

    /// Adds bytes, or the end; `false` if there are too many.
    fn add(&self, bytes: Option<Vec<u8>>) -> bool {
        let more = bytes.as_ref().map_or(0, Vec::len);
        let held = self.held.fetch_add(more, Ordering::Relaxed) + more;
        // The command may be about to end; then nobody takes them.
        let _ = self.to.send(bytes);
        held <= INPUT_MOST
    }
}

/// Feeds the command's standard input. What the command does not read is dropped.
async fn feed(
    to: ChildStdin,
    mut waiting: Waiting,
    held: Arc<AtomicUsize>,
    tell: mpsc::Sender<Vec<u8>>,
) {
    let mut to = Some(to);
    while let Some(bytes) = waiting.recv().await {
        let Some(bytes) = bytes else {
            to = None;
            continue;
        };
        if let Some(input) = &mut to
            && input.write_all(&bytes).await.is_err()
        {
            to = None;
            say(&tell, &Frame::InputUnread).await;
        }
        held.fetch_sub(bytes.len(), Ordering::Relaxed);
        let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        say(&tell, &Frame::Taken(taken)).await;
    }
    // Its end is the near end's to say.
    std::future::pending::<()>().await;
}

/// Takes in what the near end says. Ends when the near end breaks a rule or is gone.
async fn listen(
    mut reader: BufReader<StreamReader>,
    queue: Queue,
    (stop_out, stop_error): (oneshot::Sender<()>, oneshot::Sender<()>),
) {
    let (mut stop_out, mut stop_error) = (Some(stop_out), Some(stop_error));
    let mut has_input = true;
    while let Ok(Some(frame)) = frames::read(&mut reader).await {
        match frame {
            Frame::Input(bytes) if has_input => {
                if !queue.add(Some(bytes)) {
                    return;
                }
            }
            Frame::InputEnd if has_input => {
                has_input = false;
                queue.add(None);
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

/// Hangs a command up whose user is gone, with all of its process group; a command that goes on is
/// told to end.
async fn hang_up(child: &mut Child) {
    let Some(group) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else {
        return;
    };
    for (signal, span) in [(Signal::HUP, HANG_UP_SPAN), (Signal::TERM, Duration::ZERO)] {
        // The command may end at this moment. One that was stopped hears when it goes on.
        let _ = kill_process_group(group, signal);
        let _ = kill_process_group(group, Signal::CONT);
        if timeout(span, child.wait()).await.is_ok() {
            return;
        }
    }
}

/// Bytes that are read from the stream at a time.
const READ_AHEAD: usize = 256 << 10;

/// Bytes of an output that are carried at a time: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Frames that wait for the stream.
const WAITING: usize = 4;

/// Time for a command that was hung up to end.
const HANG_UP_SPAN: Duration = Duration::from_secs(5);
