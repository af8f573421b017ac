//! Where a user's pump is found.
//!
//! In the directory that the system keeps for the user, which nobody else can enter; without one a
//! place must be named. What runs under `gtp run` already has the pump of that.

use std::path::{Path, PathBuf};

use gtp::{Failure, FailureKind};

/// The variable by which a program under `gtp run` finds its pump.
pub const SOCKET: &str = "GTP_RUN_SOCKET";

/// The pump's socket: as named, else that of the `gtp run` above this process, else the user's.
pub fn socket(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    if let Some(above) = std::env::var_os(SOCKET).map(PathBuf::from).filter(|p| p.is_absolute()) {
        return Ok(above);
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match dir.filter(|dir| dir.is_absolute()) {
        Some(dir) => Ok(dir.join("gtp").join("pump.sock")),
        None => {
            let text = "there is no XDG_RUNTIME_DIR: name a place for the pump with --pump";
            Err(Failure::new(FailureKind::Usage, text))
        }
    }
}

/// The library that is put before programs' C library: as named, else beside this program, else
/// where `make install` puts it.
pub fn preload(named: Option<&Path>) -> Result<PathBuf, Failure> {
    const NAME: &str = "libgtp_preload.so";
    let own = std::env::current_exe().map_err(crate::verbs::other)?;
    let beside = own.with_file_name(NAME);
    let installed = own.parent().and_then(Path::parent).map(|dir| dir.join("lib").join(NAME));
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => std::iter::once(beside).chain(installed).collect(),
    };
    let found = candidates.iter().find(|path| path.is_file());
    let absolute = found.and_then(|path| path.canonicalize().ok());
    absolute.ok_or_else(|| {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        let text = format!("{NAME} is not at {}; name it with --preload", places.join(" or "));
        Failure::new(FailureKind::Missing, text)
    })
}
