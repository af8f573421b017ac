//! Where a user's pump is found.
//!
//! Unless a place is named, the pump's socket is in the user's own directory, which no other user
//! can enter. A program under `gtp run` uses the pump of that `gtp run`.

use std::io;
use std::os::unix::fs::DirBuilderExt;
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
    let dir = gtp_share::user_dir().map_err(|error| {
        let text = format!("no place for the pump: {error}; or name one with --pump");
        Failure::new(FailureKind::Usage, text)
    })?;
    Ok(dir.join("pump.sock"))
}

/// Makes the directory of a pump's socket, for this user alone, unless it is there.
///
/// # Errors
/// The system's error; `PermissionDenied` where another user can replace the socket.
pub fn make_dir_of(socket: &Path) -> io::Result<()> {
    let Some(dir) = socket.parent() else { return Ok(()) };
    if gtp_share::user_dir().is_ok_and(|own| own == dir) {
        return gtp_share::make_user_dir().map(|_| ());
    }
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Another user may have been faster, or may write to one that was there.
    gtp_share::check_socket_dir(dir)
}

/// The library that is put before programs' C library: as named, else beside this program, else
/// where `make install` puts it.
pub fn preload(named: Option<&Path>) -> Result<PathBuf, Failure> {
    const NAME: &str = "libgtp_preload.so";
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => {
            let own = own_program()?;
            let installed = own.parent().and_then(Path::parent);
            let installed = installed.map(|dir| dir.join("lib").join(NAME));
            std::iter::once(own.with_file_name(NAME)).chain(installed).collect()
        }
    };
    let found = candidates.iter().find(|path| path.is_file());
    let absolute = found.and_then(|path| path.canonicalize().ok());
    absolute.ok_or_else(|| {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        let text = format!("{NAME} is not at {}; name it with --preload", places.join(" or "));
        Failure::new(FailureKind::Missing, text)
    })
}

/// The file of this program.
///
/// # Errors
/// That the kernel does not tell, with what to do where `/proc` is what is lacking.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| match shows_itself() {
        true => crate::verbs::other(error),
        false => {
            let text = format!(
                "gtp cannot find its own program file, and so not its library: {NO_PROC}, or name \
                 the library with --preload"
            );
            Failure::new(FailureKind::Other, text)
        }
    })
}

/// Checks that this process can hold a pump or start one, which finds sockets, descriptors and its
/// own program by `/proc`.
///
/// # Errors
/// That `/proc` is not there, with what to do.
pub fn check_pump() -> Result<(), Failure> {
    if shows_itself() {
        return Ok(());
    }
    let text = format!(
        "no pump can be started here: {NO_PROC}, or name a pump that runs elsewhere (--pump)"
    );
    Err(Failure::new(FailureKind::Other, text))
}

/// Whether the kernel shows this process its own descriptors.
fn shows_itself() -> bool {
    Path::new("/proc/self/fd").is_dir()
}

/// What is lacking without `/proc`, and how to mend it.
const NO_PROC: &str = "/proc is not mounted; mount it (mount -t proc proc /proc)";
