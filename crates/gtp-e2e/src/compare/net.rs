//! The networks of comparisons: several sources to one sink, or several to several.
//!
//! A network is known by its file, which both worlds read, by the hosts at both ends of each
//! session, and by the exact shares of the sessions that live.

use anyhow::Result;

use crate::cases::optimum;
use crate::lab::{Shape, mesh_file, network_file};
use crate::record::route;

/// Who sends to whom over what.
#[derive(Clone, Debug)]
pub enum Net {
    /// Session `i` goes from source `i` to the one sink, whose capacity all share.
    Star(Shape),
    /// Sessions among several sources and sinks, each of which has a capacity.
    Mesh(Mesh),
}

/// As many sinks as sources, each behind an access link.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Rate of each sink's access link and its queue.
    pub access: (String, String),
    /// Round-trip times from each source, in milliseconds.
    pub rtts_ms: Vec<f64>,
    /// Source and sink of each session.
    pub pairs: Vec<(usize, usize)>,
}

impl Net {
    /// The network file.
    pub fn file(&self) -> String {
        match self {
            Net::Star(shape) => network_file(shape),
            Net::Mesh(mesh) => {
                let (rate, queue) = &mesh.access;
                mesh_file((rate, queue), &mesh.rtts_ms, &mesh.pairs)
            }
        }
    }

    /// The queue of the sinks' access links.
    pub fn queue(&self) -> &str {
        match self {
            Net::Star(shape) => &shape.access.1,
            Net::Mesh(mesh) => &mesh.access.1,
        }
    }

    /// Names of the sinks' access links.
    pub fn access_links(&self) -> Vec<String> {
        match self {
            Net::Star(_) => vec!["access".into()],
            Net::Mesh(mesh) => (0..mesh.rtts_ms.len()).map(|i| format!("access{i}")).collect(),
        }
    }

    /// Names of a session's source and sink.
    pub fn ends(&self, session: usize) -> (String, String) {
        match self {
            Net::Star(_) => (format!("src{session}"), "sink".into()),
            Net::Mesh(mesh) => {
                let (from, to) = mesh.pairs[session];
                (format!("src{from}"), format!("sink{to}"))
            }
        }
    }

    /// Name of a session's route.
    pub fn route(&self, session: usize) -> String {
        match self {
            Net::Star(_) => route(session),
            Net::Mesh(_) => {
                let (source, sink) = self.ends(session);
                format!("{source}-{sink}")
            }
        }
    }

    /// What each of the `live` sessions should have where every limited host has `capacity`.
    ///
    /// # Errors
    /// If there is no such network.
    pub fn shares(&self, live: &[usize], capacity: f64) -> Result<Vec<f64>> {
        match self {
            Net::Star(_) => Ok(vec![capacity / live.len().max(1) as f64; live.len()]),
            Net::Mesh(mesh) => {
                let pairs: Vec<_> = live.iter().map(|&i| mesh.pairs[i]).collect();
                optimum(&pairs, mesh.rtts_ms.len(), capacity)
            }
        }
    }

    /// Whether sources, too, have a capacity.
    pub fn limits_sources(&self) -> bool {
        matches!(self, Net::Mesh(_))
    }
}
