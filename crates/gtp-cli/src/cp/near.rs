//! The near end's talk with the far end: ssh, its pipes, and the hello over them.
//!
//! ssh runs as a child process. It asks for passwords on the terminal itself. Its standard error is
//! passed on line by line, with terminal control characters escaped. The far end runs as long as
//! its standard input is open, so dropping [`FarEnd`] ends it.

mod asking;
mod sender;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use gtp::{Failure, FailureKind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::follow::{Ask, Told};
use super::hello::{self, Ability, Answer, Bad, Finder, Message, Ready, Request, Want};
use super::operand::Login;
use super::program::Program;
use super::script;
use super::tunnel::{self, Frame, Links, NoFrame, accept_links};
use crate::output::aside;
use crate::shell::quoted;
use crate::verbs::other;

pub use sender::{Sender, call_sender};

/// How the far end is reached.
pub struct Way<'a> {
    /// The program that logs in, and its arguments, between spaces.
    pub ssh: &'a str,
    /// Further options of that program, before the login.
    pub options: &'a [OsString],
    /// Who logs in where.
    pub login: &'a Login,
    /// The program to send if none is there.
    pub program: Option<Program>,
    /// How long ssh and the other end may be silent before the far end's program begins, but for
    /// the time in which ssh asks its user.
    pub silence: Duration,
}

/// A far end that serves this process.
pub struct FarEnd {
    child: Child,
    /// The task that shows the far end that this one lives.
    keep_alive: JoinHandle<()>,
    /// The task that writes to the far end; it holds the far end's standard input.
    writing: JoinHandle<()>,
    /// The port of this machine whose connections ssh carries to the far end's server.
    detour: Option<SocketAddr>,
    /// Set once nothing more comes from it.
    has_ended: watch::Receiver<bool>,
    links: Links,
    /// What it tells of a tree that it watches; `None` if it cannot.
    told: Option<mpsc::Receiver<Vec<u8>>>,
    /// Why the tree is not watched, as it was said last.
    unwatched: Option<String>,
    stderr_task: JoinHandle<()>,
}

/// Starts a far end and asks it. What comes over `bare` is said to the far end's server without
/// TLS, the first of it right behind the question; a far end that does not take that closes it.
///
/// # Errors
/// [`FailureKind::Temporary`] if there is no program, [`FailureKind::Unreachable`] if the login
/// fails, [`FailureKind::Authentication`] if the releases do not fit, and whatever the far end
/// fails by.
pub async fn call(
    way: Way<'_>,
    request: &Request,
    bare: Option<DuplexStream>,
) -> Result<(FarEnd, Ready), Failure> {
    let (talk, answer) = answer(&way, request, bare).await?;
    let failure = match judge(answer) {
        Ok(Answer::Ready(ready)) => {
            // Where ssh's pipe is all there is, plain ssh runs a command as well. Without a port
            // there is no detour.
            let listening = async || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.ok();
            let detour = match request.want {
                Want::Run(_) | Want::Send(_) => None,
                Want::Read(_)
                | Want::Write(_)
                | Want::Tree(_)
                | Want::Alike(_)
                | Want::Receive(_) => listening().await,
            };
            if !Ability::Bare.is_of(&ready.version) {
                talk.links.end(tunnel::BARE);
            }
            let watches = match Ability::Watch.is_of(&ready.version) {
                true => Watches::Yes,
                false => Watches::No,
            };
            return Ok((talk.into_far_end(detour, watches), ready));
        }
        Ok(Answer::Sends(_) | Answer::Failed(_)) => unasked(),
        Err(failure) => failure,
    };
    talk.into_far_end(None, Watches::No).close().await;
    Err(failure.about(way.login))
}

/// Whether a far end can watch a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watches {
    Yes,
    No,
}

/// Starts a far end and waits for its answer.
async fn answer(
    way: &Way<'_>,
    request: &Request,
    bare: Option<DuplexStream>,
) -> Result<(Talk, Answer), Failure> {
    let mut talk = Talk::start(way, bare)?;
    match talk.converse(way, request).await {
        Ok(answer) => Ok((talk, answer)),
        Err(failure) => {
            talk.give_up().await;
            Err(failure.about(way.login))
        }
    }
}

/// What an answer means to a command.
fn judge(answer: Answer) -> Result<Answer, Failure> {
    let version = match &answer {
        Answer::Ready(ready) => &ready.version,
        Answer::Sends(sends) => &sends.version,
        Answer::Failed(failed) => &failed.version,
    };
    let own = env!("CARGO_PKG_VERSION");
    if !hello::are_compatible(version, own) {
        let text = format!(
            "gtp {version} is there, and this is gtp {own}; --install puts this one beside it"
        );
        return Err(Failure::new(FailureKind::Authentication, text));
    }
    match answer {
        Answer::Ready(_) | Answer::Sends(_) => Ok(answer),
        Answer::Failed(failed) => {
            Err(Failure::new(failed.kind(), gtp_text::of_message(&failed.text)))
        }
    }
}

/// That a far end answers another question than the one that it was asked.
fn unasked() -> Failure {
    senseless(&Bad::Malformed("it answers what nobody asked".into()))
}

/// ssh under way.
struct Talk {
    child: Child,
    links: Links,
    /// The task that writes to the far end; it holds the far end's standard input.
    writing: JoinHandle<()>,
    from: ChildStdout,
    finder: Finder,
    /// What has come and was not looked at.
    come: Vec<u8>,
    stderr_task: JoinHandle<()>,
    /// Changes with each piece of standard error.
    stderr_said: watch::Receiver<()>,
    /// What is to become the link without TLS.
    bare: Option<DuplexStream>,
}

impl Talk {
    fn start(way: &Way<'_>, bare: Option<DuplexStream>) -> Result<Talk, Failure> {
        let mut arguments = way.ssh.split_whitespace();
        let program = arguments.next().unwrap_or("ssh");
        let script = match &way.program {
            Some(program) => program.script(),
            None => script::start(),
        };
        let mut command = Command::new(program);
        command.args(arguments).args(way.options).arg(way.login.for_ssh()).arg(script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Without /proc no question shows in any case.
        let _ = asking::pass_no_terminal_on();
        let started = command.kill_on_drop(true).spawn();
        let mut child = started.map_err(|error| other(format!("cannot run {program}: {error}")))?;
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(errors)) = ends else {
            return Err(other(format!("{program} has no pipes")));
        };
        let (tell, stderr_said) = watch::channel(());
        let stderr_task = tokio::spawn(pass_on(errors, tell));
        let (finder, come) = (Finder::default(), Vec::new());
        let (links, writing) = Links::over(to);
        let writing = tokio::spawn(writing);
        Ok(Talk { child, links, writing, from, finder, come, stderr_task, stderr_said, bare })
    }

    /// Says what is wanted, sends the program if it is asked for, and waits for the answer.
    async fn converse(&mut self, way: &Way<'_>, request: &Request) -> Result<Answer, Failure> {
        let request = hello::of_request(request);
        let mut has_begun = false;
        if way.program.is_none() {
            self.ask(&request).await;
        }
        loop {
            let heard = match has_begun {
                false => self.hear_first(way.silence).await?,
                true => timeout(ANSWER_SPAN, self.hear()).await.map_err(|_| silent())??,
            };
            match (heard, &way.program) {
                (Message::Answer(answer), _) => return Ok(*answer),
                (Message::Found, None) => has_begun = true,
                (Message::Found, Some(_)) => {
                    has_begun = true;
                    self.ask(&request).await;
                }
                (Message::Send, Some(program)) => {
                    let (length, login) = (program.length(), way.login);
                    aside(format_args!("gtp: {login}: installing {length} bytes"));
                    self.links.say_first(program.bytes()).await;
                }
                (Message::Absent(system), _) => return Err(absent(way.login, &system)),
                (Message::Foreign(system), _) => return Err(foreign(way.login, &system)),
                (Message::Unfit(system), _) => {
                    let text = format!("this gtp does not run there; the system is {system:?}");
                    return Err(Failure::new(FailureKind::Temporary, text));
                }
                (Message::Damaged, _) => {
                    let text = "the program did not arrive whole; is the disk there full?";
                    return Err(Failure::new(FailureKind::Temporary, text));
                }
                (Message::Send, None) => {
                    return Err(unasked());
                }
            }
        }
    }

    /// Says what is wanted, and begins the link without TLS right behind it. If that fails the far
    /// end has ended, and its end says why.
    async fn ask(&mut self, request: &str) {
        self.links.say_first(request.as_bytes()).await;
        if let Some(pipe) = self.bare.take() {
            self.links.begin(tunnel::BARE, pipe).await;
        }
    }

    /// The first message of the far end, if neither ssh nor what it runs is silent for too long.
    /// Time in which ssh asks its user for something does not count.
    async fn hear_first(&mut self, silence: Duration) -> Result<Message, Failure> {
        let mut said = self.stderr_said.clone();
        let mut quiet = Duration::ZERO;
        loop {
            let heard = async {
                tokio::select! {
                    heard = self.hear() => Some(heard),
                    Ok(()) = said.changed() => None,
                }
            };
            let span = LOOK_SPAN.min(silence - quiet);
            match timeout(span, heard).await {
                Ok(Some(heard)) => return heard,
                // ssh, or what it runs, has said something to the user.
                Ok(None) => quiet = Duration::ZERO,
                Err(_) if self.child.id().is_some_and(asking::asks) => quiet = Duration::ZERO,
                Err(_) => quiet += span,
            }
            if quiet >= silence {
                return Err(unanswered(silence, &self.finder.skipped()));
            }
        }
    }

    /// The next message of the far end. Safe to cancel.
    async fn hear(&mut self) -> Result<Message, Failure> {
        let mut chunk = vec![0; CHUNK];
        loop {
            if !self.come.is_empty() {
                let (taken, message) =
                    self.finder.take(&self.come).map_err(|bad| senseless(&bad))?;
                self.come.drain(..taken);
                if let Some(message) = message {
                    return Ok(message);
                }
            }
            match self.from.read(&mut chunk).await {
                Ok(0) | Err(_) => return Err(self.ended().await),
                Ok(count) => self.come.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Why ssh ended before the far end had answered.
    async fn ended(&mut self) -> Failure {
        let status = timeout(END_SPAN, self.child.wait()).await;
        // What ssh itself says is shown first.
        settle(&mut self.stderr_task).await;
        let how = match status {
            Ok(Ok(status)) => in_words(status),
            Ok(Err(_)) | Err(_) => "closed its output".into(),
        };
        let is_login = matches!(status, Ok(Ok(status)) if status.code() == Some(SSH_FAILED));
        let said = self.finder.skipped();
        let said = if said.is_empty() { said } else { format!("; it said: {said}") };
        if is_login {
            return Failure::new(FailureKind::Unreachable, format!("ssh failed: it {how}{said}"));
        }
        let text = format!("the far end {how} before it had answered{said}");
        Failure::new(FailureKind::Temporary, text)
    }

    /// Ends ssh, and shows what it still says.
    async fn give_up(mut self) {
        self.links.close();
        stop(&mut self.writing).await;
        if timeout(GRACE_SPAN, self.child.wait()).await.is_err() {
            // It leaves a terminal on which it asks for a password as it was.
            terminate(&self.child);
        }
        if timeout(GRACE_SPAN, self.child.wait()).await.is_err() {
            // It may end at this moment.
            let _ = self.child.kill().await;
        }
        settle(&mut self.stderr_task).await;
    }

    /// A far end that is served; what connects to the listener is carried to its server.
    fn into_far_end(self, listener: Option<TcpListener>, watches: Watches) -> FarEnd {
        let Talk { child, links, writing, from, come, stderr_task, .. } = self;
        let detour = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let (end, has_ended) = watch::channel(false);
        let (tell, told) = mpsc::channel(TOLD);
        let told = (watches == Watches::Yes).then_some(told);
        let own = links.clone();
        let keep_alive = tokio::spawn(async move {
            tokio::select! {
                () = beat(&own) => {}
                () = hear_links(from, come, &own, (tell, &end)) => {}
                () = accept_links(listener, &own) => {}
            }
        });
        let unwatched = None;
        FarEnd {
            child,
            keep_alive,
            writing,
            detour,
            has_ended,
            links,
            told,
            unwatched,
            stderr_task,
        }
    }
}

impl FarEnd {
    /// The port of this machine whose connections ssh carries to the far end's server, if there is
    /// one.
    pub fn detour(&self) -> Option<SocketAddr> {
        self.detour
    }

    /// Waits until the far end says no more, because it or ssh has ended. Safe to cancel.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut has_ended = self.has_ended.clone();
        async move {
            // The task that tells ends only when the far end is closed.
            let _ = has_ended.wait_for(|&has_ended| has_ended).await;
        }
    }

    /// Has the far end watch the tree that was found.
    ///
    /// # Errors
    /// A [`Failure`] if it cannot.
    pub async fn watch(&self) -> Result<(), Failure> {
        if self.told.is_none() {
            return Err(other("--watch: gtp there is too old to watch a tree"));
        }
        self.links.say(&Frame::Message(Ask::Watch.encode())).await;
        Ok(())
    }

    /// Waits until the tree that the far end watches may have changed, or the far end is gone. Safe
    /// to cancel.
    pub async fn changed(&mut self) {
        let Some(told) = &mut self.told else { return self.ended().await };
        while let Some(bytes) = told.recv().await {
            let unwatched = match Told::decode(&bytes) {
                Some(Told::Changed) => None,
                // What is not watched may have changed at any time.
                Some(Told::Unwatched(why)) => Some(why),
                None => continue,
            };
            if let Some(why) = unwatched.as_ref().filter(|_| unwatched != self.unwatched) {
                aside(format_args!("gtp: {}", gtp_text::of_message(why)));
            }
            self.unwatched = unwatched;
            break;
        }
        // Of changes that have been told already there need be no further round.
        while told.try_recv().is_ok() {}
    }

    /// Whether the far end is gone.
    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the far end is gone. Safe to cancel.
    pub async fn gone(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => in_words(status),
            Err(error) => format!("is lost: {error}"),
        }
    }

    /// Ends the far end and waits until it is gone.
    pub async fn close(mut self) {
        stop(&mut self.keep_alive).await;
        // Its end closes the pipe.
        stop(&mut self.writing).await;
        if timeout(END_SPAN, self.child.wait()).await.is_err() {
            // It may end at this moment.
            let _ = self.child.kill().await;
        }
        settle(&mut self.stderr_task).await;
    }
}

/// Ends a task and waits until it has let go of what it holds.
async fn stop(task: &mut JoinHandle<()>) {
    task.abort();
    // Its end is all that matters, however it came.
    let _ = task.await;
}

/// Shows the far end that this one lives. Never ends.
async fn beat(links: &Links) {
    let mut tick = tokio::time::interval(BEAT_SPAN);
    loop {
        tick.tick().await;
        links.beat().await;
    }
}

/// Takes in what the far end says of links, and tells of its end. Other bytes are read and dropped,
/// so that they do not fill the pipe. Never ends.
async fn hear_links(
    mut from: ChildStdout,
    mut come: Vec<u8>,
    links: &Links,
    (tell, end): (mpsc::Sender<Vec<u8>>, &watch::Sender<bool>),
) {
    while take_frames(&mut come, links, &tell).is_ok() {
        if !matches!(from.read_buf(&mut come).await, Ok(1..)) {
            break;
        }
    }
    drop(tell);
    links.close();
    // It may have ended.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    end.send_replace(true);
    std::future::pending().await
}

/// Takes all whole frames off what has come.
fn take_frames(
    come: &mut Vec<u8>,
    links: &Links,
    tell: &mpsc::Sender<Vec<u8>>,
) -> Result<(), NoFrame> {
    while let Some(frame) = Frame::take(come)? {
        match frame {
            // One that waits already says as much.
            Frame::Message(bytes) => drop(tell.try_send(bytes)),
            frame @ (Frame::Open(_) | Frame::Data(..) | Frame::Taken(..) | Frame::End(_)) => {
                links.handle(frame)?;
            }
        }
    }
    Ok(())
}

/// Asks a child to end.
fn terminate(child: &Child) {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(id) = id {
        // It may have ended; until it is waited for, the number stays its own.
        let _ = kill_process(id, Signal::TERM);
    }
}

/// Passes on what ssh and the far end say to people, and tells each time that they do.
async fn pass_on(mut from: impl AsyncRead + Unpin, tell: watch::Sender<()>) {
    let (mut waiting, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let read = match waiting.is_empty() {
            true => Ok(from.read(&mut chunk).await),
            // A question has no end of line.
            false => timeout(QUESTION_SPAN, from.read(&mut chunk)).await,
        };
        let ended = match read {
            Ok(Ok(0) | Err(_)) => true,
            Ok(Ok(count)) => {
                waiting.extend_from_slice(&chunk[..count]);
                tell.send_replace(());
                false
            }
            Err(_) => {
                show(&std::mem::take(&mut waiting));
                false
            }
        };
        while let Some(end) = waiting.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            show(&line);
        }
        if ended || waiting.len() > CHUNK {
            show(&std::mem::take(&mut waiting));
        }
        if ended {
            return;
        }
    }
}

/// Waits until what ssh said is passed on; a program that it left behind may hold the pipe.
async fn settle(stderr_task: &mut JoinHandle<()>) {
    if !stderr_task.is_finished() {
        // What it has said so far is out.
        let _ = timeout(GRACE_SPAN, stderr_task).await;
    }
}

fn show(line: &[u8]) {
    let line = line.trim_ascii_end();
    if !line.is_empty() {
        aside(String::from_utf8_lossy(line));
    }
}

fn in_words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with code {code}"),
        None => "was killed".into(),
    }
}

fn senseless(bad: &Bad) -> Failure {
    let kind = match bad {
        Bad::Version(_) => FailureKind::Authentication,
        Bad::TooLong | Bad::TooMuch | Bad::Malformed(_) => FailureKind::Other,
    };
    Failure::new(kind, format!("the far end does not speak as gtp does: {bad}"))
}

/// That no program is there, with what would put it there.
fn absent(login: &Login, system: &str) -> Failure {
    let (cached, help) = (in_cache(), installing(login));
    let text = format!(
        "no gtp is there, neither in PATH nor as ~/{cached} (the system is {system}). {help}"
    );
    Failure::new(FailureKind::Temporary, text)
}

/// That there is another program of the same name only.
fn foreign(login: &Login, system: &str) -> Failure {
    let help = installing(login);
    let text = format!(
        "a program called gtp is there, and it is another one than this (the system is {system}). \
         {help}"
    );
    Failure::new(FailureKind::Temporary, text)
}

/// That the far end's program began and then said nothing.
fn silent() -> Failure {
    let seconds = ANSWER_SPAN.as_secs();
    let text = format!("gtp was started there, and has not answered within {seconds} s");
    Failure::new(FailureKind::Temporary, text)
}

/// That nothing has come after the login, or that there is none yet.
fn unanswered(silence: Duration, said: &str) -> Failure {
    let said = if said.is_empty() { String::new() } else { format!("; the login said: {said}") };
    let seconds = silence.as_secs_f64();
    let text = format!("no answer for {seconds} s (--login-limit){said}");
    Failure::new(FailureKind::Temporary, text)
}

/// Where the program is looked for first, beneath the login's home.
fn in_cache() -> String {
    format!(".cache/gtp/{}/gtp", env!("CARGO_PKG_VERSION"))
}

/// What puts this program there: an option, or a line to be pasted, in which the login is quoted.
fn installing(login: &Login) -> String {
    let cached = in_cache();
    let dir = cached.trim_end_matches("/gtp");
    let (to, target) = (quoted(&login.for_ssh()), quoted(&format!("{login}:{cached}")));
    format!(
        "Repeat with --install to have this program put there, or: ssh {to} mkdir -p {dir} && \
         scp \"$(command -v gtp)\" {target}"
    )
}

/// ssh's own exit code when it fails.
const SSH_FAILED: i32 = 255;

/// Time for the far end's program to answer once it has begun, each time: paths are looked up on
/// its disks, and an installed program is received.
const ANSWER_SPAN: Duration = Duration::from_secs(30);

/// Time between two looks at whether ssh asks its user for something.
const LOOK_SPAN: Duration = Duration::from_millis(500);

/// What is told of a tree and waits to be heard.
const TOLD: usize = 4;

/// Bytes that are read at a time.
const CHUNK: usize = 16 << 10;

/// Time between two signs of life.
const BEAT_SPAN: Duration = Duration::from_secs(15);

/// Time for ssh and the far end to end: the far end gives its sessions five seconds.
const END_SPAN: Duration = Duration::from_secs(10);

/// Time for what has no reason left to last.
const GRACE_SPAN: Duration = Duration::from_secs(1);

/// Silence after which the beginning of a line is shown.
const QUESTION_SPAN: Duration = Duration::from_millis(200);
