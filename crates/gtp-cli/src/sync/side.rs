//! One of the two trees: here, or at a server that perhaps ssh has started.
//!
//! Both kinds answer the same questions and carry out the same steps, so that the code that decides
//! need not know which is where.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gtp::replica::{Asked, Deed, Fault, NodeKind, Patch, Replica, Seen};
use gtp::tree::{
    BlocksAsked, Carried, EarlySurvey, OwnTree, Purpose, SmallAsked, SmallContents, Tree, When,
    read_small, survey_and_sum, survey_name_here,
};
use gtp::{Failure, FailureKind, Fingerprint, Host, RelPath, Survey, Url, Value};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::TransferArgs;
use crate::cp::paths::is_content;
use crate::verbs::other;

/// A tree here.
pub struct Here {
    /// Its path, for opening it as a source.
    pub path: PathBuf,
    /// Its directory.
    pub replica: Arc<Replica>,
    /// A survey that has begun.
    begun: Mutex<Option<Surveying>>,
}

type Surveying = JoinHandle<Result<Survey, Failure>>;

/// A tree at a server.
pub struct There {
    /// The address of its content.
    pub url: Url,
    /// The key of a server that ssh has started.
    pub key: Option<Fingerprint>,
    /// Which servers are believed, and how long they are waited for.
    pub transfer: TransferArgs,
    tree: Tree,
}

/// What a tree at a server is to the command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It is looked at.
    Looked,
    /// It is changed.
    Changed,
}

impl Part {
    /// What a session about it is for.
    pub fn purpose(self) -> Purpose {
        match self {
            Part::Looked => Purpose::Look,
            Part::Changed => Purpose::Change,
        }
    }
}

/// A tree.
pub enum Side {
    /// Here.
    Here(Here),
    /// At a server.
    There(Box<There>),
}

impl Here {
    /// A tree that is there, to be followed.
    ///
    /// # Errors
    /// [`FailureKind::Missing`] if it is not.
    pub fn source(path: &Path) -> Result<Here, Failure> {
        let shown = gtp_text::of_text(&path.to_string_lossy());
        let failed = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => FailureKind::Other,
                _ => FailureKind::Missing,
            };
            Failure::new(kind, format!("{shown}: {error}"))
        };
        let replica = Replica::beneath(path, None).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotADirectory {
                return Failure::new(FailureKind::Usage, format!("{shown}: is no directory"));
            }
            failed(error)
        })?;
        Ok(Here::of(path.to_owned(), replica))
    }

    /// The directory that holds a file or link, to be followed as that alone, with its name; `None`
    /// if a directory is there, or nothing.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if its name cannot travel.
    pub fn single(path: &Path) -> Result<Option<(Here, RelPath)>, Failure> {
        let is_file = path.symlink_metadata().is_ok_and(|about| !about.is_dir());
        let (Some(name), true) = (path.file_name(), is_file && !path.is_dir()) else {
            return Ok(None);
        };
        let name = name.to_str().and_then(|name| own_name(name).ok().flatten());
        let name = name.and_then(|name| RelPath::new(&name).ok()).ok_or_else(|| {
            let shown = gtp_text::of_text(&path.to_string_lossy());
            Failure::new(FailureKind::Usage, format!("{shown}: the name cannot be carried"))
        })?;
        let holder = path.parent().filter(|holder| !holder.as_os_str().is_empty());
        Ok(Some((Here::source(holder.unwrap_or(Path::new(".")))?, name)))
    }

    /// A tree that is to be made like another one, at a path or, with a name, beneath it. It need
    /// not be there, but the directory that holds the path must be.
    ///
    /// # Errors
    /// [`FailureKind::Destination`].
    pub fn destination(path: &Path, name: Option<&str>) -> Result<Here, Failure> {
        let shown = gtp_text::of_text(&path.to_string_lossy());
        let failed =
            |why: String| Failure::new(FailureKind::Destination, format!("{shown}: {why}"));
        let (holder, own) = match path.metadata() {
            Ok(about) if about.is_dir() => (path.to_owned(), None),
            Ok(_) => return Err(failed("is no directory".into())),
            Err(_) => {
                let own = path.file_name().and_then(|own| own.to_str());
                let own = own.ok_or_else(|| failed("no such directory".into()))?;
                let holder = path.parent().filter(|holder| !holder.as_os_str().is_empty());
                (holder.unwrap_or(Path::new(".")).to_owned(), Some(own))
            }
        };
        let at: Vec<&str> = own.into_iter().chain(name).collect();
        let at = (!at.is_empty()).then(|| RelPath::new(&at.join("/"))).transpose();
        let at = at.map_err(|why| failed(why.to_string()))?;
        let full = match &at {
            Some(at) => holder.join(at.as_str()),
            None => holder.clone(),
        };
        let replica = Replica::beneath(&holder, at).map_err(|error| failed(error.to_string()))?;
        Ok(Here::of(full, replica))
    }

    /// The directory that holds a path, with the name that the path has there; what is at the path
    /// need not be there, and no link is followed.
    ///
    /// # Errors
    /// [`FailureKind::Destination`] if the directory is not there, or the name cannot be carried.
    pub fn holder(path: &Path) -> Result<(Here, RelPath), Failure> {
        let failed = |why: String| {
            let shown = gtp_text::of_text(&path.to_string_lossy());
            Failure::new(FailureKind::Destination, format!("{shown}: {why}"))
        };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = RelPath::new(name).map_err(|why| failed(why.to_string()))?;
        let holder = path.parent().filter(|holder| !holder.as_os_str().is_empty());
        let holder = holder.unwrap_or(Path::new("."));
        if !holder.is_dir() {
            return Err(failed(
                "the directory that should hold it is not there: make it first".into(),
            ));
        }
        Ok((Here::destination(holder, None)?, name))
    }

    /// A directory for backups, which need not be there, nor those above it.
    ///
    /// # Errors
    /// [`FailureKind::Destination`].
    pub fn place(path: &Path) -> Result<Here, Failure> {
        let full = real(path);
        let replica = Replica::at(&full).map_err(|error| {
            let shown = gtp_text::of_text(&full.to_string_lossy());
            Failure::new(FailureKind::Destination, format!("{shown}: {error}"))
        })?;
        Ok(Here::of(full, replica))
    }

    fn of(path: PathBuf, replica: Replica) -> Here {
        Here { path, replica: Arc::new(replica), begun: Mutex::default() }
    }

    /// Begins the survey that will be asked for, on a thread of its own. Returns what a far end
    /// need not tell of a tree that is like this one, once that is known.
    pub fn begin_survey(&self, asked: Asked) -> oneshot::Receiver<OwnTree> {
        let (tell, told) = oneshot::channel();
        let replica = Arc::clone(&self.replica);
        let survey = tokio::task::spawn_blocking(move || {
            let (survey, own) = survey_and_sum(&replica, asked)?;
            // Nobody need ask a far end.
            let _ = tell.send(own);
            Ok(survey)
        });
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(survey);
        told
    }

    fn start_survey(&self, asked: Asked, only: Option<&RelPath>) -> Surveying {
        let (replica, only) = (Arc::clone(&self.replica), only.cloned());
        tokio::task::spawn_blocking(move || survey_name_here(&replica, asked, only.as_ref()))
    }

    /// The contents of small files, each if one is asked for and is what was seen.
    pub async fn contents(
        &self,
        files: Vec<Option<(RelPath, Seen)>>,
        when: When,
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let replica = Arc::clone(&self.replica);
        let read = move |file: &Option<(RelPath, Seen)>| {
            file.as_ref().and_then(|file| read_small(&replica, file, when))
        };
        let reading = tokio::task::spawn_blocking(move || files.iter().map(read).collect());
        reading.await.map_err(other)
    }

    async fn survey(&self, asked: Asked, only: Option<&RelPath>) -> Result<Survey, Failure> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let survey = begun.unwrap_or_else(|| self.start_survey(asked, only)).await;
        let shown = gtp_text::of_text(&self.path.to_string_lossy());
        survey.map_err(other)?.map_err(|failure| failure.about(shown))
    }
}

impl There {
    /// The tree at an address; of a far end with its key, and the survey that it was asked for, if
    /// it was.
    pub fn new(
        url: Url,
        far: Option<(Fingerprint, Option<EarlySurvey>)>,
        transfer: TransferArgs,
        part: Part,
    ) -> There {
        let mut tree = Tree::new(url.clone()).patience(transfer.retry_for);
        if part == Part::Changed {
            tree = tree.to_change();
        }
        let (trust, key) = (&transfer.trust, far.as_ref().map(|(key, _)| *key));
        tree = match far {
            Some((key, Some(early))) => tree.fingerprint(key).surveyed_early(early),
            Some((key, None)) => tree.fingerprint(key),
            None => trust.fingerprint.iter().fold(tree, |tree, key| tree.fingerprint(*key)),
        };
        if key.is_none() && trust.accept_new {
            tree = tree.accept_new();
        }
        There { url, key, transfer, tree }
    }

    /// Carries steps out. Returns what came of them.
    ///
    /// # Errors
    /// A [`Failure`] if the server cannot be asked.
    pub async fn carry_out(&self, host: &Host, deeds: &[Deed]) -> Result<Carried, Failure> {
        self.tree.carry_out(host, deeds).await
    }

    /// The address of the tree if it is that of a file.
    ///
    /// # Errors
    /// A [`Failure`] if it is no address.
    pub fn url_of_file(&self) -> Result<Url, Failure> {
        self.url.encoded().trim_end_matches('/').parse().map_err(other)
    }

    /// Whether a name in the tree's own directory is that of a directory, a file or link, or
    /// nothing's.
    ///
    /// # Errors
    /// A [`Failure`] if the tree cannot be read, and [`FailureKind::Destination`] if its directory
    /// is not there.
    pub async fn kind_of(&self, host: &Host, name: &RelPath) -> Result<Option<NodeKind>, Failure> {
        let survey = self.tree.survey(host, Asked::default(), Some(name)).await?;
        if !survey.is_there {
            let name = gtp_text::of_text(name.as_str());
            let text = format!("the directory that should hold {name} is not there");
            return Err(Failure::new(FailureKind::Destination, text));
        }
        let mut nodes = survey.nodes.into_iter();
        Ok(nodes.find(|node| node.path.as_ref() == Some(name)).map(|node| node.kind))
    }

    /// Ends what was begun with the server.
    pub async fn close(&self) {
        self.tree.close().await;
    }
}

impl Side {
    /// What the tree holds; of its own directory one name alone if one is given.
    ///
    /// # Errors
    /// A [`Failure`] if it cannot be read.
    pub async fn survey(
        &self,
        host: &Host,
        asked: Asked,
        only: Option<&RelPath>,
    ) -> Result<Survey, Failure> {
        match self {
            Side::Here(here) => here.survey(asked, only).await,
            Side::There(there) => there.tree.survey(host, asked, only).await,
        }
    }

    /// Ends what was begun with a server.
    pub async fn close(&self) {
        match self {
            Side::Here(_) => {}
            Side::There(there) => there.close().await,
        }
    }

    /// Carries steps out, and returns those that failed.
    ///
    /// # Errors
    /// A [`Failure`] if it is not known how far they went.
    pub async fn carry_out(&self, host: &Host, deeds: Vec<Deed>) -> Result<Vec<Fault>, Failure> {
        if deeds.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Side::Here(here) => {
                let replica = Arc::clone(&here.replica);
                let done = tokio::task::spawn_blocking(move || {
                    let mut steps = replica.steps();
                    for (index, deed) in deeds.iter().enumerate() {
                        steps.carry_out(index, deed);
                    }
                    steps.finish().into_iter().map(|(_, fault)| fault).collect()
                });
                done.await.map_err(other)
            }
            Side::There(there) => Ok(there.carry_out(host, &deeds).await?.faults),
        }
    }

    /// The same for the last steps: a session with a server ends with them.
    ///
    /// # Errors
    /// As [`Side::carry_out`].
    pub async fn carry_out_last(
        &self,
        host: &Host,
        deeds: Vec<Deed>,
    ) -> Result<Vec<Fault>, Failure> {
        match self {
            Side::There(there) if !deeds.is_empty() => {
                there.tree.carry_out_last(host, &deeds).await
            }
            Side::Here(_) | Side::There(_) => self.carry_out(host, deeds).await,
        }
    }

    /// The contents of small files, each if it is what was seen.
    ///
    /// # Errors
    /// A [`Failure`] if a server cannot be asked.
    pub async fn contents(
        &self,
        host: &Host,
        files: Vec<SmallAsked>,
        when: When,
    ) -> Result<SmallContents, Failure> {
        if files.is_empty() {
            return Ok(SmallContents::default());
        }
        match self {
            Side::Here(here) => {
                let files = files.into_iter().map(|asked| Some((asked.path, asked.seen)));
                let files = here.contents(files.collect(), when).await?;
                Ok(SmallContents { files, travelled: 0 })
            }
            Side::There(there) => there.tree.contents(host, &files, when).await,
        }
    }

    /// What makes new versions of small files, whose contents are given, of those that were seen at
    /// a server; nothing of a file that is here, or of which the server does not tell.
    ///
    /// # Errors
    /// A [`Failure`] if a server cannot be asked.
    pub async fn patches(
        &self,
        host: &Host,
        files: &[(RelPath, Seen, &[u8])],
    ) -> Result<Vec<Option<Patch>>, Failure> {
        match self {
            Side::There(there) if !files.is_empty() => there.tree.patches(host, files).await,
            Side::Here(_) | Side::There(_) => Ok(vec![None; files.len()]),
        }
    }

    /// The values of blocks of files. One that cannot be read has none.
    ///
    /// # Errors
    /// A [`Failure`] if a server cannot be asked.
    pub async fn block_values(
        &self,
        host: &Host,
        files: Vec<BlocksAsked>,
    ) -> Result<Vec<(RelPath, Vec<Value>)>, Failure> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Side::Here(here) => {
                let replica = Arc::clone(&here.replica);
                let read = tokio::task::spawn_blocking(move || {
                    let values = |BlocksAsked { path, size, most }| {
                        let most = usize::try_from(most).unwrap_or(usize::MAX);
                        let values = replica.block_values(&path, size, 0, most);
                        values.ok().map(|values| (path, values))
                    };
                    files.into_iter().filter_map(values).collect()
                });
                read.await.map_err(other)
            }
            Side::There(there) => there.tree.block_values(host, &files).await,
        }
    }
}

/// The name under which a source goes beneath the destination; `None` if only its content does.
///
/// # Errors
/// [`FailureKind::Usage`] if the last part of the path is no name.
pub fn own_name(path: &str) -> Result<Option<String>, Failure> {
    if is_content(path) {
        return Ok(None);
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let named = RelPath::new(name).map_err(|why| {
        Failure::new(FailureKind::Usage, format!("{}: {why}", gtp_text::of_text(path)))
    })?;
    Ok(Some(named.as_str().to_owned()))
}

/// Refuses a directory of backups that is beneath one of the trees, where it would be synced with
/// the tree, or that holds one of them; `dir` is a path from the destination's. Of a source whose
/// one file is followed `alone`, only the directory itself is refused, where a backup could take
/// the file's place.
///
/// # Errors
/// [`FailureKind::Usage`].
pub fn refuse_backups(
    (source, alone): (&Side, bool),
    destination: &Side,
    dir: &Path,
) -> Result<(), Failure> {
    // A far end judges of its own directories, and servers have been refused.
    let Side::Here(destination) = destination else { return Ok(()) };
    let place = real(&destination.path.join(dir));
    let meets = |tree: &Path| place.starts_with(tree) || tree.starts_with(&place);
    let meets_source = match source {
        Side::Here(here) if alone => real(&here.path) == place,
        Side::Here(here) => meets(&real(&here.path)),
        Side::There(_) => false,
    };
    if meets_source || meets(&real(&destination.path)) {
        return Err(Failure::new(FailureKind::Usage, BACKUPS_MEET));
    }
    Ok(())
}

/// That a directory of backups is no place for them.
pub const BACKUPS_MEET: &str = "--backup-dir: it lies in SRC, or contains SRC or DST; write one \
                                in DST as a path from DST";

/// That a server keeps old versions in the tree alone.
pub fn backups_at_server() -> Failure {
    let text = "--backup-dir: a server at gtp:// keeps backups in DST alone; write the directory \
                as a path from DST, without ..";
    Failure::new(FailureKind::Usage, text)
}

/// A path without dots, and without links as far as it is there.
pub fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|part| Some((part.canonicalize().ok()?, part)));
    let Some((mut real, part)) = known else { return path };
    for component in path.strip_prefix(part).unwrap_or(&path).components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            Component::Normal(name) => real.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    real
}

/// Refuses trees here that are the same, or of which one holds the other.
///
/// # Errors
/// [`FailureKind::Usage`].
pub fn refuse_nested(source: &Here, destination: &Here) -> Result<(), Failure> {
    let (from, to) = (real(&source.path), real(&destination.path));
    let why = match (from.starts_with(&to), to.starts_with(&from)) {
        (true, true) => "source and destination are the same directory",
        (true, false) => "the source is inside the destination",
        (false, true) => "the destination is inside the source",
        (false, false) => return Ok(()),
    };
    Err(Failure::new(FailureKind::Usage, why))
}
