//! Looks at a whole tree at a server, and changes it step by step. No datagram is sent.
//!
//! Each call is a session of its own: between two of them a transfer may take hours, and nothing
//! has to be kept alive. What the server tells is checked before it is used.

use gtp_proto::Revision;
use gtp_store::replica::{Asked, Deed, Fault, LeftOut, Node};
use gtp_store::{RelPath, Value};
use tokio::time::timeout;

use super::connect::{self, Granted, SKIPPED_MAX, Units, ask, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ControlChannel, ControlError};
use crate::flows::tree::{BadTree, Gathered, pages, wanted};
use crate::flows::{Failure, FailureKind};
use crate::messages::{BlocksWanted, Done, Message, Reason, Verb};

/// What a tree holds.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Its nodes, sorted by the bytes of their paths; the first is its own directory.
    pub nodes: Vec<Node>,
    /// What is there and cannot be carried; a bounded number.
    pub left_out: Vec<LeftOut>,
    /// Whether its own directory is there.
    pub is_there: bool,
    /// Whether what is made there can be given to any owner.
    pub may_own: bool,
}

/// A session about a tree.
pub struct TreeSession {
    channel: ControlChannel,
    terms: Terms,
    shown: String,
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The tree is looked at.
    Look,
    /// It is changed.
    Change,
}

impl TreeSession {
    /// Opens a session about the tree at an address.
    ///
    /// # Errors
    /// A [`Failure`] if the server refuses, or does not know of trees.
    pub async fn open(
        endpoint: &Endpoint,
        url: &Url,
        terms: &Terms,
        purpose: Purpose,
    ) -> Result<TreeSession, Failure> {
        let verb = Verb::Tree { path: url.path().to_vec(), changes: purpose == Purpose::Change };
        let channel = reach(endpoint, url, terms).await?;
        let Granted { channel, .. } =
            ask(channel, endpoint, url, verb, (terms, Units::Ordinary), &|| {}).await?;
        if channel.revision() < Revision::Fifth {
            let text = format!("{}: gtp there is too old to keep trees alike", url.host());
            return Err(Failure::new(FailureKind::Authentication, text));
        }
        Ok(TreeSession { channel, terms: terms.clone(), shown: url.to_string() })
    }

    /// Surveys the tree.
    ///
    /// # Errors
    /// A [`Failure`] if the tree cannot be read, or the server breaks a rule.
    pub async fn survey(&mut self, asked: Asked) -> Result<Survey, Failure> {
        self.channel.send(&Message::TreeWanted(wanted(asked))).await?;
        let mut gathered = Gathered::default();
        let mut left_out = Vec::new();
        loop {
            match self.next().await? {
                Message::TreePage(page) => gathered.page(page).map_err(bad)?,
                Message::TreeEnd(end) => {
                    let nodes = gathered.end(end.nodes_total).map_err(bad)?;
                    let is_there = end.is_there && !nodes.is_empty();
                    return Ok(Survey { nodes, left_out, is_there, may_own: end.may_own });
                }
                Message::Fault(fault) => match &fault.path {
                    Some(path) if left_out.len() < SKIPPED_MAX => {
                        let why = connect::left_out(&[], &fault.text).text;
                        let hides =
                            fault.reason != Reason::Other || left_out.len() + 1 == SKIPPED_MAX;
                        let path = crate::messages::printable(path);
                        left_out.push(LeftOut { path, why, hides });
                    }
                    Some(_) => {}
                    None => return Err(Failure::of_fault(&fault).about(&self.shown)),
                },
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Carries steps out, in their order. Returns those that failed.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks; some steps may have been carried out then.
    pub async fn carry_out(&mut self, deeds: &[Deed]) -> Result<Vec<Fault>, Failure> {
        let (mut faults, mut before) = (Vec::new(), 0);
        for page in pages(deeds) {
            let count = page.deeds.len();
            self.channel.send(&Message::Deeds(page)).await?;
            match self.next().await? {
                Message::DeedsDone(done) => {
                    for fault in done.faults {
                        let index = fault.index as usize;
                        if index >= count {
                            let text = "a fault of a step that was not asked for".into();
                            return Err(ControlError::Unexpected(text).into());
                        }
                        let path = gtp_store::escaped(deeds[before + index].name());
                        faults.push(Fault { path, why: fault.text.to_string() });
                    }
                }
                Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                other => return Err(unexpected(&other)),
            }
            before += count;
        }
        Ok(faults)
    }

    /// The values of the blocks of a file, as many as the server can tell.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks.
    pub async fn block_values(&mut self, path: &RelPath, size: u64) -> Result<Vec<Value>, Failure> {
        let mut values: Vec<Value> = Vec::new();
        let blocks = size.div_ceil(gtp_store::BLOCK);
        while (values.len() as u64) < blocks {
            let wanted = BlocksWanted {
                path: path.as_str().as_bytes().to_vec(),
                size,
                first: values.len() as u64,
            };
            self.channel.send(&Message::BlocksWanted(wanted)).await?;
            match self.next().await? {
                Message::BlockValues(came) if came.values.0.is_empty() => break,
                Message::BlockValues(came) => values.extend(came.values.0),
                Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                other => return Err(unexpected(&other)),
            }
        }
        values.truncate(usize::try_from(blocks).unwrap_or(usize::MAX));
        Ok(values)
    }

    /// Ends the session.
    pub async fn close(mut self) {
        // The server may be gone; nothing is left to say then.
        let _ = self.channel.send(&Message::Done(Done { files: 0, content_bytes: 0 })).await;
        self.channel.close().await;
    }

    /// The next message that is no sign of life. A server may be at work for as long as it shows
    /// such signs.
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            let sign = timeout(self.terms.patience, self.channel.sign()).await;
            match sign.map_err(|_| ControlError::TimedOut("the tree"))?? {
                Message::Keepalive => {}
                message => return Ok(message),
            }
        }
    }
}

fn unexpected(message: &Message) -> Failure {
    ControlError::Unexpected(format!("message {}", message.name())).into()
}

fn bad(why: BadTree) -> Failure {
    Failure::new(FailureKind::Other, why.to_string())
}
