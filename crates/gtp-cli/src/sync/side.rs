//! One of the two trees: here, or at a server that perhaps ssh has started.
//!
//! Both kinds answer the same questions and carry out the same steps, so that the code that decides
//! need not know which is where.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gtp::replica::{Asked, Deed, Fault, Replica};
use gtp::tree::{Tree, survey_here};
use gtp::{Failure, FailureKind, Fingerprint, Host, RelPath, Survey, Url, Value};

use crate::args::TransferArgs;
use crate::cp::paths::is_content;
use crate::verbs::other;

/// A tree here.
pub struct Here {
    /// Its path, for opening it as a source.
    pub path: PathBuf,
    /// Its directory.
    pub replica: Arc<Replica>,
}

/// A tree at a server.
pub struct There {
    /// The address of its content.
    pub url: Url,
    /// The key of a server that ssh has started.
    pub key: Option<Fingerprint>,
    /// Which servers are believed, and how long they are waited for.
    pub transfer: TransferArgs,
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
                let text = format!("{shown}: is no directory; gtp cp copies single files");
                return Failure::new(FailureKind::Usage, text);
            }
            failed(error)
        })?;
        Ok(Here { path: path.to_owned(), replica: Arc::new(replica) })
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
        Ok(Here { path: full, replica: Arc::new(replica) })
    }
}

impl There {
    fn tree(&self) -> Tree {
        let mut tree = Tree::new(self.url.clone()).patience(self.transfer.retry_for);
        if let Some(key) = self.key {
            return tree.fingerprint(key);
        }
        for key in &self.transfer.trust.fingerprint {
            tree = tree.fingerprint(*key);
        }
        if self.transfer.trust.accept_new { tree.accept_new() } else { tree }
    }
}

impl Side {
    /// What the tree holds.
    ///
    /// # Errors
    /// A [`Failure`] if it cannot be read.
    pub async fn survey(&self, host: &Host, asked: Asked) -> Result<Survey, Failure> {
        match self {
            Side::Here(here) => {
                let replica = Arc::clone(&here.replica);
                let survey = tokio::task::spawn_blocking(move || survey_here(&replica, asked));
                let shown = gtp_text::of_text(&here.path.to_string_lossy());
                survey.await.map_err(other)?.map_err(|failure| failure.about(shown))
            }
            Side::There(there) => there.tree().survey(host, asked).await,
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
                    deeds.iter().filter_map(|deed| replica.apply(deed).err()).collect()
                });
                done.await.map_err(other)
            }
            Side::There(there) => there.tree().carry_out(host, &deeds).await,
        }
    }

    /// The values of the blocks of files of these lengths. One that cannot be read has none.
    ///
    /// # Errors
    /// A [`Failure`] if a server cannot be asked.
    pub async fn block_values(
        &self,
        host: &Host,
        files: Vec<(RelPath, u64)>,
    ) -> Result<Vec<(RelPath, Vec<Value>)>, Failure> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Side::Here(here) => {
                let replica = Arc::clone(&here.replica);
                let read = tokio::task::spawn_blocking(move || {
                    let values = |(path, size): (RelPath, u64)| {
                        let values = replica.block_values(&path, size, 0, usize::MAX);
                        values.ok().map(|values| (path, values))
                    };
                    files.into_iter().filter_map(values).collect()
                });
                read.await.map_err(other)
            }
            Side::There(there) => there.tree().block_values(host, &files).await,
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

/// Refuses trees here that are the same, or of which one holds the other.
///
/// # Errors
/// [`FailureKind::Usage`].
pub fn refuse_nested(source: &Here, destination: &Here) -> Result<(), Failure> {
    let real = |path: &Path| {
        let known = path.ancestors().find_map(|part| {
            let real = part.canonicalize().ok()?;
            Some(real.join(path.strip_prefix(part).ok()?))
        });
        known.unwrap_or_else(|| path.to_owned())
    };
    let (from, to) = (real(&source.path), real(&destination.path));
    let why = match (from.starts_with(&to), to.starts_with(&from)) {
        (true, true) => "source and destination are the same directory",
        (true, false) => "the source is inside the destination",
        (false, true) => "the destination is inside the source",
        (false, false) => return Ok(()),
    };
    Err(Failure::new(FailureKind::Usage, why))
}
