//! Calling a far end: ssh starts it, both ends exchange keys, and this host learns where it is.
//!
//! A host is usually started for one call, with a key for it alone; several calls may share one.
//! What is then moved, and which way, is not known here.

use std::ffi::OsString;

use gtp::{Detour, Failure, Host, Identity};
use tokio::io::DuplexStream;
use tokio::sync::watch as told;

use super::hello::{Ready, Request, Want};
use super::near::{FarEnd, Way, call};
use super::operand::Login;
use super::program::Program;
use super::reach::{merged, named};
use super::{WayArgs, url};
use crate::args::{HostArgs, TransferArgs};
use crate::verbs::host;

/// Starts a far end by ssh, and this host with a key for it alone.
///
/// # Errors
/// As [`call`], and what starting this host says.
pub async fn call_far_end(
    way: &WayArgs,
    transfer: &TransferArgs,
    login: &Login,
    want: Want,
) -> Result<(Host, FarEnd, Ready), Failure> {
    call_by(Call { way, host: &transfer.host, options: &[] }, login, want).await
}

/// As [`call_far_end`], for a tree that is surveyed as soon as the far end lives: `ask` asks over
/// the pipe that it is given, before anybody has answered. It hears when somebody has.
///
/// # Errors
/// As [`call_far_end`].
pub async fn call_and_ask<T>(
    way: &WayArgs,
    transfer: &TransferArgs,
    (login, want): (&Login, Want),
    ask: impl FnOnce(&Host, DuplexStream, told::Receiver<bool>) -> Result<T, Failure>,
) -> Result<(Host, FarEnd, Ready, T), Failure> {
    let call = Call { way, host: &transfer.host, options: &[] };
    let caller = call.prepare(want)?;
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (answered, is_answered) = told::channel(false);
    let asked = ask(&caller.here, near, is_answered)?;
    let (here, far, ready) = call.through(login, caller, Some(far)).await?;
    answered.send_replace(true);
    Ok((here, far, ready, asked))
}

/// How a far end is called.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// How it is reached.
    pub way: &'a WayArgs,
    /// This host.
    pub host: &'a HostArgs,
    /// Options of ssh's, before the login.
    pub options: &'a [OsString],
}

/// Starts a far end as [`call_far_end`] does, with ssh's own options.
///
/// # Errors
/// As [`call_far_end`].
pub async fn call_by(
    called: Call<'_>,
    login: &Login,
    want: Want,
) -> Result<(Host, FarEnd, Ready), Failure> {
    let caller = called.prepare(want)?;
    called.through(login, caller, None).await
}

/// This host with a key for one call, and what it asks.
pub(super) struct Caller {
    here: Host,
    pub request: Request,
}

impl Call<'_> {
    fn prepare(&self, want: Want) -> Result<Caller, Failure> {
        let here = host(self.host).identity(Identity::generate()).start()?;
        Ok(self.prepare_on(here, want))
    }

    /// A call from a host that has been started.
    pub(super) fn prepare_on(&self, here: Host, want: Want) -> Caller {
        let (version, key) = (env!("CARGO_PKG_VERSION").to_owned(), here.fingerprint());
        Caller { request: Request { version, key, ports: self.way.port, want }, here }
    }

    async fn through(
        self,
        login: &Login,
        Caller { here, request }: Caller,
        bare: Option<DuplexStream>,
    ) -> Result<(Host, FarEnd, Ready), Failure> {
        let (far, ready) = self.dial(login, &request, bare).await?;
        match introduce(&here, login, (&far, &ready)).await {
            Ok(()) => Ok((here, far, ready)),
            Err(failure) => {
                far.close().await;
                Err(failure)
            }
        }
    }

    /// Starts the far end, of which no host knows yet.
    pub(super) async fn dial(
        self,
        login: &Login,
        request: &Request,
        bare: Option<DuplexStream>,
    ) -> Result<(FarEnd, Ready), Failure> {
        let Call { way, options, .. } = self;
        let program = way.install.then(Program::read).transpose()?;
        let silence = way.login_limit;
        call(Way { ssh: &way.ssh, options, login, program, silence }, request, bare).await
    }
}

/// Tells a host where a far end is.
///
/// # Errors
/// If it cannot be named.
pub(super) async fn introduce(
    here: &Host,
    login: &Login,
    (far, ready): (&FarEnd, &Ready),
) -> Result<(), Failure> {
    let named = named(login, ready.port).await;
    let url = url(login, ready, "", true)?;
    here.introduce(&url, merged(ready, &named));
    if let Some(address) = far.detour() {
        let (words, datagrams) = (over_ssh(login), named.first().copied());
        here.introduce_detour(&url, Detour { address, words, datagrams });
    }
    Ok(())
}

/// That ssh carries the data.
fn over_ssh(login: &Login) -> String {
    format!("no port of {login} gets through but ssh's: ssh carries the data, which is slower")
}

/// Bytes that wait on their way to the link without TLS.
const PIPE_BYTES: usize = 64 << 10;
