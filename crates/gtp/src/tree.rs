//! Keeping trees alike: what a tree here or at a server holds, single changes of it, and moving the
//! files that were chosen.
//!
//! What is to be done is the caller's decision. Trees here are reached beneath an open directory,
//! trees at a server by sessions that carry no data.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use gtp_net::client::{
    Carried, OwnTree, Pieces, Purpose, SENT_AT_ONCE, SMALL_TOGETHER_MAX, SmallAsked, SmallContents,
};
use gtp_net::client::{Survey, TreeSession, Url};
use gtp_net::flows::{Failure, FailureKind, next_change_shows};
pub use gtp_net::flows::{When, read_small};
use gtp_net::identity::Fingerprint;
use gtp_store::replica::{
    Asked, ChosenSink, Deed, Fault, Node, Patch, RenamedSource, Replica, SUMMED_MAX, Seen, Summing,
    Surveyed,
};
use gtp_store::{
    BlockSource, Destination, Existing, Export, FileSink, FileSource, Kind, MadeDir, Manifest,
    RelPath, RootKind, SinkError, SinkOptions, Value,
};
use tokio::io::DuplexStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::copy::pour;
use crate::get::{Asked as Wishes, Get};
use crate::host::{AcceptNew, Host};
use crate::put::Put;

/// A tree at a server. One session serves all that is asked of it, also after a pause; a session
/// that broke in the pause is made anew.
#[must_use = "nothing happens before it is asked"]
pub struct Tree {
    url: Url,
    asked: Wishes,
    purpose: Purpose,
    early: Mutex<Option<EarlySurvey>>,
    resting: Mutex<Option<Resting>>,
}

/// A session that has been opened, and a survey that has been asked for, before it was known which
/// tree answers.
#[must_use = "it is of use to the tree that it is given to"]
pub struct EarlySurvey(JoinHandle<Result<(TreeSession, Survey), Failure>>);

impl EarlySurvey {
    /// Asks over a pipe that somebody else protects, such as one through ssh. `path` is beneath the
    /// place that the other end has been told. Before it asks it waits for `own`, a tree here; what
    /// both have in common need not travel then, and `pieces` says whether small files that differ
    /// are asked for at once. If nothing comes of that wait, all is asked for.
    /// `patience` counts once `lives` has ended, which tells that the other end lives.
    ///
    /// # Errors
    /// If this host's keys are not to be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn begin(
        host: &Host,
        pipe: DuplexStream,
        path: &str,
        (purpose, patience): (Purpose, Duration),
        (asked, pieces): (Asked, Pieces),
        own: impl Future<Output = Option<OwnTree>> + Send + 'static,
        lives: impl Future<Output = ()> + Send + 'static,
    ) -> Result<EarlySurvey, Failure> {
        let wishes = Wishes { patience, ..Wishes::default() };
        let terms = wishes.terms(host)?;
        let (endpoint, path) = (Arc::clone(&host.endpoint), path.to_owned());
        Ok(EarlySurvey(tokio::spawn(async move {
            let own = own.await;
            let asked = (asked, own.as_ref(), pieces);
            TreeSession::survey_over(&endpoint, pipe, &path, (&terms, purpose), asked, lives).await
        })))
    }
}

/// A session in a pause.
struct Resting {
    wake: oneshot::Sender<()>,
    session: JoinHandle<Option<TreeSession>>,
}

/// Files of a tree that are to be moved, with the directories above them.
#[derive(Debug, Default)]
pub struct Chosen {
    paths: BTreeSet<String>,
    files: Vec<String>,
    /// What the one chosen file is called at the source, if not as at the destination.
    at_source: Option<String>,
    /// Values of blocks of the new version of a file of which an older one is at the destination.
    values: Vec<(RelPath, Vec<Value>)>,
    /// Chosen files that were not there any more when they were to be moved.
    missing: Mutex<Vec<String>>,
}

/// A file of which the values of blocks are asked for.
#[derive(Clone, Debug)]
pub struct BlocksAsked {
    /// Its path beneath the tree.
    pub path: RelPath,
    /// Its length in bytes.
    pub size: u64,
    /// How many blocks are of use, from the first on. What a server tells beyond is dropped.
    pub most: u64,
}

impl Tree {
    /// The tree at this address, to be looked at.
    pub fn new(url: Url) -> Tree {
        let (asked, resting) = (Wishes::default(), Mutex::default());
        Tree { url, asked, purpose: Purpose::Look, early: Mutex::default(), resting }
    }

    /// The tree is to be changed as well.
    pub fn to_change(mut self) -> Tree {
        self.purpose = Purpose::Change;
        self
    }

    /// The first survey has been asked for already. If that fails, it is asked for again.
    pub fn surveyed_early(mut self, early: EarlySurvey) -> Tree {
        self.early = Mutex::new(Some(early));
        self
    }

    /// Believes a server with this key only.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Tree {
        self.asked.trust.pinned.push(fingerprint);
        self
    }

    /// Trusts and remembers a server that was never met.
    pub fn accept_new(mut self) -> Tree {
        self.asked.trust.accept_new = AcceptNew::Yes;
        self
    }

    /// Waits this long for a server that says nothing.
    pub fn patience(mut self, patience: Duration) -> Tree {
        self.asked.patience = patience;
        self
    }

    /// Returns what the tree holds, or of its own directory one name alone.
    ///
    /// # Errors
    /// A [`Failure`] if the server refuses, or the tree cannot be read.
    pub async fn survey(
        &self,
        host: &Host,
        asked: Asked,
        only: Option<&RelPath>,
    ) -> Result<Survey, Failure> {
        if let Some((session, survey)) = self.early_survey().await? {
            self.rest(session);
            return Ok(survey);
        }
        if let Some(mut session) = self.wake().await {
            let survey = session.survey(asked, only).await?;
            self.rest(session);
            return Ok(survey);
        }
        let terms = self.asked.terms(host)?;
        let (url, purpose) = (&self.url, self.purpose);
        let asked = (asked, only);
        let opened = TreeSession::open_and_survey(&host.endpoint, url, &terms, purpose, asked);
        let (session, survey) = opened.await?;
        self.rest(session);
        Ok(survey)
    }

    /// What the survey that was asked for early brings; `None` if it is to be asked for again,
    /// because a far end does not answer over the pipe.
    async fn early_survey(&self) -> Result<Option<(TreeSession, Survey)>, Failure> {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(EarlySurvey(asking)) = early else { return Ok(None) };
        match asking.await {
            Ok(Ok(brought)) => Ok(Some(brought)),
            Ok(Err(failure)) if !failure.is_temporary() => Err(failure),
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    /// Carries steps out in their order, ends the session with the server, and returns the steps
    /// that failed. A far end that serves this session alone then ends as well.
    ///
    /// # Errors
    /// As [`Tree::carry_out`].
    pub async fn carry_out_last(&self, host: &Host, deeds: &[Deed]) -> Result<Vec<Fault>, Failure> {
        let session = self.session(host).await?;
        session.carry_out_last(deeds).await
    }

    /// Carries steps out in their order, and returns what came of them.
    ///
    /// # Errors
    /// A [`Failure`] if the server does not let this host write, or the session breaks.
    pub async fn carry_out(&self, host: &Host, deeds: &[Deed]) -> Result<Carried, Failure> {
        let mut session = self.session(host).await?;
        let carried = session.carry_out(deeds).await?;
        self.rest(session);
        Ok(carried)
    }

    /// Returns the values of blocks of these files, as many as the server tells. Beyond
    /// 2^22 values (1 TiB of content), none are asked for.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks, or the server answers what was not asked.
    pub async fn block_values(
        &self,
        host: &Host,
        files: &[BlocksAsked],
    ) -> Result<Vec<(RelPath, Vec<Value>)>, Failure> {
        let mut session = self.session(host).await?;
        let (mut all, mut left) = (Vec::new(), VALUES_MAX);
        for BlocksAsked { path, size, most } in files {
            let values = session.block_values(path, *size, left.min(*most)).await?;
            left -= values.len() as u64;
            all.push((path.clone(), values));
        }
        self.rest(session);
        Ok(all)
    }

    /// Returns the contents of small files, each if it is what was seen.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks, or the server answers what was not asked.
    pub async fn contents(
        &self,
        host: &Host,
        files: &[SmallAsked],
        when: When,
    ) -> Result<SmallContents, Failure> {
        let mut session = self.session(host).await?;
        let contents = session.contents(files, when).await?;
        self.rest(session);
        Ok(contents)
    }

    /// Returns for each small file what makes the new version, whose content is given, of the one
    /// that was seen at the server; `None` if the server does not tell what that holds. Only a
    /// server whose survey says so knows of this.
    ///
    /// # Errors
    /// As [`Tree::contents`].
    pub async fn patches(
        &self,
        host: &Host,
        files: &[(RelPath, Seen, &[u8])],
    ) -> Result<Vec<Option<Patch>>, Failure> {
        let mut session = self.session(host).await?;
        let patches = session.patches(files).await?;
        self.rest(session);
        Ok(patches)
    }

    /// Ends the session with the server, if there is one.
    pub async fn close(&self) {
        if let Some(session) = self.wake().await {
            session.close().await;
        }
    }

    /// The session that rests, or a new one.
    async fn session(&self, host: &Host) -> Result<TreeSession, Failure> {
        if let Some(session) = self.wake().await {
            return Ok(session);
        }
        let terms = self.asked.terms(host)?;
        TreeSession::open(&host.endpoint, &self.url, &terms, self.purpose).await
    }

    /// Keeps a session alive until it is needed again.
    fn rest(&self, mut session: TreeSession) {
        let (wake, woken) = oneshot::channel();
        let session = tokio::spawn(async move {
            // Whoever drops the tree wants the session no more.
            let kept = session.keep(async { drop(woken.await) }).await;
            kept.is_ok().then_some(session)
        });
        *self.resting.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Resting { wake, session });
    }

    async fn wake(&self) -> Option<TreeSession> {
        let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Resting { wake, session } = resting?;
        // A session that broke has ended its pause by itself.
        let _ = wake.send(());
        session.await.ok().flatten()
    }
}

/// Returns what a tree here holds. Blocks.
///
/// # Errors
/// [`FailureKind::Missing`] and the like if the tree's own directory cannot be read.
pub fn survey_here(replica: &Replica, asked: Asked) -> Result<Survey, Failure> {
    survey_name_here(replica, asked, None)
}

/// The same of one name in the tree's own directory alone, if there is one. Blocks.
///
/// # Errors
/// As [`survey_here`].
pub fn survey_name_here(
    replica: &Replica,
    asked: Asked,
    only: Option<&RelPath>,
) -> Result<Survey, Failure> {
    let mut survey = walk_here(replica, asked, only)?;
    sort(&mut survey.nodes);
    Ok(survey)
}

/// The same, with what another end need not tell of a tree that is like this one. Blocks.
///
/// # Errors
/// As [`survey_here`].
pub fn survey_and_sum(replica: &Replica, asked: Asked) -> Result<(Survey, OwnTree), Failure> {
    let mut survey = walk_here(replica, asked, None)?;
    let key = OwnTree::draw_key();
    let (mut summing, mut sums) = (Summing::new(key), Vec::new());
    // A walk takes directory after directory; the tree's own directory is in none.
    let is_next = |one: &Node, other: &Node| {
        one.path.is_some() == other.path.is_some() && directory(one) == directory(other)
    };
    for nodes in survey.nodes.chunk_by(is_next) {
        let dir = nodes.first().filter(|node| node.path.is_some()).map(directory);
        match dir.filter(|_| nodes.len() <= SUMMED_MAX) {
            Some(dir) => sums.push((dir.to_owned(), summing.sum(dir, nodes))),
            None => summing.pass(nodes),
        }
    }
    sort(&mut survey.nodes);
    let own = OwnTree::new(survey.nodes.clone(), key, sums);
    Ok((survey, own))
}

fn directory(node: &Node) -> &str {
    node.name().rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn sort(nodes: &mut [Node]) {
    nodes.sort_by(|one, other| one.name().cmp(other.name()));
}

fn walk_here(replica: &Replica, asked: Asked, only: Option<&RelPath>) -> Result<Survey, Failure> {
    let mut survey = Survey { may_own: Replica::may_own(), ..Survey::default() };
    let each = &mut |found| {
        match found {
            Surveyed::Node(node) => survey.nodes.push(*node),
            Surveyed::LeftOut(left_out) => survey.left_out.push(left_out),
        }
        true
    };
    let walked = match only {
        Some(name) => replica.survey_name(asked, name, each),
        None => replica.survey_with(asked, asked.helpers(), each),
    };
    survey.is_there = walked.map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => FailureKind::Missing,
            _ => FailureKind::Destination,
        };
        Failure::new(kind, std::io::Error::from(error).to_string())
    })?;
    Ok(survey)
}

impl Chosen {
    /// These files and the directories above them; `values` are of blocks of their new versions.
    pub fn new(files: Vec<String>, values: Vec<(RelPath, Vec<Value>)>) -> Chosen {
        let mut paths: BTreeSet<String> = BTreeSet::new();
        for file in &files {
            let mut path = file.as_str();
            while paths.insert(path.to_owned())
                && let Some((holder, _)) = path.rsplit_once('/')
            {
                path = holder;
            }
        }
        Chosen { paths, files, at_source: None, values, missing: Mutex::default() }
    }

    /// The one chosen file has this name in the source's own directory.
    pub fn called(mut self, name: String) -> Chosen {
        self.at_source = Some(name);
        self
    }

    /// Returns whether a path is that of a chosen file, at either end, or of a directory above one.
    /// For messages alone: what is written goes by the names here.
    pub fn has(&self, path: &str) -> bool {
        self.paths.contains(path) || self.at_source.as_deref() == Some(path)
    }

    /// Returns the chosen files that were not there any more, escaped for display.
    pub fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes which chosen files an object lacks.
    fn compare(&self, manifest: &Manifest) {
        let files = manifest.entries.iter().filter(|entry| entry.kind == Kind::File);
        let there: HashSet<&str> = files.map(|entry| entry.path.as_str()).collect();
        let missing = self.files.iter().filter(|file| !there.contains(file.as_str()));
        let missing = missing.map(|file| gtp_store::escaped(file)).collect();
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }

    /// A source of the chosen files of a tree here, under the names that they get.
    fn source(&self, root: &Path) -> Result<Box<dyn BlockSource>, Failure> {
        let of = |paths: &BTreeSet<String>| {
            let scanned = Export::open(root)?.pick(paths)?;
            Ok::<_, Failure>(FileSource::new(scanned).with_settling(next_change_shows))
        };
        let source: Box<dyn BlockSource> = match (&self.at_source, &self.files[..]) {
            (Some(name), [file]) => {
                let to = RelPath::new(file);
                let to = to.map_err(|why| Failure::new(FailureKind::Other, why.to_string()))?;
                Box::new(RenamedSource::new(of(&BTreeSet::from([name.clone()]))?, &to))
            }
            (Some(_) | None, _) => Box::new(of(&self.paths)?),
        };
        self.compare(source.manifest());
        Ok(source)
    }

    /// A sink for the chosen files of an object that another end lists, in a tree here.
    fn sink(&self, replica: &Replica, whole: &Manifest) -> Result<ChosenSink, SinkError> {
        let root = root_of(replica)?;
        if whole.root_kind == RootKind::File {
            return self.sink_of_file(root, whole);
        }
        // What a renamed file is called here says nothing about a directory there.
        if self.at_source.is_some() {
            let text = "a directory comes in place of the file that was chosen";
            return Err(SinkError::Unsuitable(text.into()));
        }
        self.sink_of_dir(root, whole)
    }

    /// A sink for the chosen files of an object that lists them under the names that they get.
    fn sink_of_dir(&self, root: OwnedFd, whole: &Manifest) -> Result<ChosenSink, SinkError> {
        self.compare(whole);
        let destination = Destination::into_open(root, ".", MadeDir::There);
        let chosen = |path: &str| self.paths.contains(path);
        let part = ChosenSink::part(whole, &chosen);
        let mut inner = FileSink::open(destination, part, replacing())?;
        for (path, values) in &self.values {
            inner.take_over(path, values)?;
        }
        Ok(ChosenSink::new(inner, whole, &chosen))
    }

    /// A sink for an object that is the one chosen file, which goes into this directory.
    fn sink_of_file(&self, root: OwnedFd, whole: &Manifest) -> Result<ChosenSink, SinkError> {
        let other = || SinkError::Unsuitable("another file than was chosen comes".into());
        let ([file], [entry]) = (&self.files[..], &whole.entries[..]) else { return Err(other()) };
        let name = RelPath::new(file).map_err(|_| other())?;
        let destination = Destination::beneath_open(root, ".", name, RootKind::File);
        let all = |_: &str| true;
        let mut inner = FileSink::open(destination, ChosenSink::part(whole, &all), replacing())?;
        for (_, values) in &self.values {
            inner.take_over(&entry.path, values)?;
        }
        Ok(ChosenSink::new(inner, whole, &all))
    }
}

/// The open directory of a tree here.
fn root_of(replica: &Replica) -> Result<OwnedFd, SinkError> {
    let root = replica.open_root().map_err(std::io::Error::from);
    let root = root.map_err(|error| SinkError::Unsuitable(error.to_string()))?;
    root.ok_or_else(|| SinkError::Unsuitable("the destination is not there any more".into()))
}

/// Which files are to be replaced has been decided.
fn replacing() -> SinkOptions {
    SinkOptions { existing: Existing::Replace, ..SinkOptions::default() }
}

impl Get {
    /// Fetches the chosen files of a directory into a tree here, in place of those that are there.
    pub fn into_tree(self, replica: Arc<Replica>, chosen: Arc<Chosen>) -> Get {
        self.into_sink(move |manifest| chosen.sink(&replica, manifest))
    }
}

impl Put {
    /// Sends the chosen files of a directory here into the directory at this address. `choose` says
    /// which, and may block until that is known: the session is opened meanwhile.
    pub fn chosen(
        root: PathBuf,
        mut choose: impl FnMut() -> Result<Arc<Chosen>, Failure> + Send + 'static,
        url: Url,
    ) -> Put {
        let make = move || {
            let chosen = choose()?;
            Ok((chosen.source(&root)?, chosen.values.clone()))
        };
        Put::content(Box::new(make), url)
    }
}

/// Copies the chosen files of a tree here to another one here. Returns what was left out, each with
/// the reason, and the bytes that were copied. Ends soon after `stop` is set. Blocks.
///
/// # Errors
/// A [`Failure`] if the destination fails, and [`FailureKind::Interrupted`] if it was stopped; what
/// is complete is kept.
pub fn copy_here(
    root: &Path,
    replica: &Replica,
    chosen: &Chosen,
    stop: &AtomicBool,
) -> Result<(Vec<Failure>, u64), Failure> {
    let mut source = chosen.source(root)?;
    let manifest = Arc::clone(source.manifest());
    let mut sink = chosen.sink_of_dir(root_of(replica)?, &manifest)?;
    let copied = AtomicU64::new(0);
    let (_, left_out) = pour(&mut *source, &mut sink, stop, &copied)?;
    Ok((left_out, copied.into_inner()))
}

/// Most values of blocks that are kept of one server's answers: 128 MiB of memory.
const VALUES_MAX: u64 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that lists this file in a directory, whatever was asked of it.
    fn lying(dir: &Path, name: &str) -> FileSource {
        std::fs::write(dir.join(name), "hostile").unwrap();
        let names = BTreeSet::from([name.to_owned()]);
        FileSource::new(Export::open(dir).unwrap().pick(&names).unwrap())
    }

    #[test]
    fn a_directory_in_place_of_a_renamed_file_overwrites_nothing() {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in [".bashrc", "their-bashrc"] {
            std::fs::write(here.path().join(name), "own").unwrap();
            let mut source = lying(there.path(), name);
            let chosen = Chosen::new(vec!["their-bashrc".into()], Vec::new());
            let chosen = chosen.called(".bashrc".into());
            let replica = Replica::at(here.path()).unwrap();
            let sink = chosen.sink(&replica, &Arc::clone(source.manifest()));
            let is_refused = sink.is_err();
            if let Ok(mut sink) = sink {
                pour(&mut source, &mut sink, &AtomicBool::default(), &AtomicU64::default())
                    .unwrap();
            }
            assert_eq!(std::fs::read_to_string(here.path().join(name)).unwrap(), "own", "{name}");
            assert!(is_refused, "{name}");
        }
    }

    #[test]
    fn a_renamed_file_here_overwrites_no_file_of_its_old_name() {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(there.path().join("old"), "content").unwrap();
        std::fs::write(here.path().join("old"), "own").unwrap();
        let chosen = Chosen::new(vec!["new".into()], Vec::new()).called("old".into());
        let replica = Replica::at(here.path()).unwrap();
        copy_here(there.path(), &replica, &chosen, &AtomicBool::default()).unwrap();
        let read = |name: &str| std::fs::read_to_string(here.path().join(name)).unwrap();
        assert_eq!((read("old"), read("new")), ("own".into(), "content".into()));
    }
}
