//! Servers that lie about their tree, for tests of programs that keep trees alike.
//!
//! A liar proves its key and opens sessions as any server does; what it says of its tree is up to
//! the test. This module must not know what the program under test makes of it.

use gtp_net::control::ControlChannel;
use gtp_net::identity::Identity;
use gtp_net::messages::{
    AlikeList, Contents, ENTRIES_MAX, EntryKind, Message, Moment, NodeKind, Opened, Packed,
    SmallContent, TreeAlike, TreeEnd, TreeNode, TreeOwner, TreePage, VERSION,
};
use gtp_net::tls::server_config;
use tokio::net::TcpListener;

/// What a liar says when it is asked for its tree.
pub type Lie = Vec<Message>;

fn node(path: &str, kind: NodeKind) -> TreeNode {
    TreeNode {
        path: path.as_bytes().to_vec(),
        kind,
        size: u64::from(kind == NodeKind::File),
        mode: 0o755,
        mtime: Moment { seconds: 1_000, nanos: 0 },
        uid: 0,
        gid: 0,
        target: (kind == NodeKind::Link).then(|| b"../outside".to_vec()),
        same: None,
        hash: None,
        xattrs: Vec::new(),
    }
}

/// A tree of these files behind its own directory, and a true end of it; a name with `/` at its end
/// is a directory, one with `@` a link that leads out of the tree.
pub fn tree(names: &[&str]) -> Lie {
    let mut nodes = vec![node("", NodeKind::Directory)];
    nodes.extend(names.iter().map(|name| match (name.strip_suffix('/'), name.strip_suffix('@')) {
        (Some(dir), _) => node(dir, NodeKind::Directory),
        (None, Some(link)) => node(link, NodeKind::Link),
        (None, None) => node(name, NodeKind::File),
    }));
    let nodes_total = nodes.len() as u64;
    vec![Message::TreePacked(Packed(TreePage { nodes, alike: None })), end(nodes_total)]
}

fn end(nodes_total: u64) -> Message {
    Message::TreeEnd(TreeEnd {
        nodes_total,
        is_there: true,
        may_own: true,
        small_max: None,
        patches: None,
        packs: None,
        alone: None,
    })
}

/// Answers each client with this lie, one client after the other, each until it goes. Never ends
/// while the listener works.
pub async fn serve(listener: TcpListener, lie: Lie) {
    let config = server_config(&Identity::generate());
    while let Ok((stream, _)) = listener.accept().await {
        let Ok((mut channel, open)) = ControlChannel::accept(stream, &config).await else {
            continue;
        };
        let opened = Opened {
            version: VERSION,
            server_session: 1,
            suite: open.suites.0[0],
            unit_payload: open.unit_payload_max,
            udp_port: 1,
            object: Some(EntryKind::Directory),
            entries_total: 0,
            content_bytes: 0,
            weight_milli: open.weight_milli,
            interval_us: 20_000,
            path: None,
            law: None,
            by_ticket: None,
            relays: None,
            time_s: None,
        };
        if channel.send(&Message::Opened(opened)).await.is_err() {
            continue;
        }
        while let Ok(heard) = channel.recv().await {
            let is_of_contents = match heard {
                Message::TreeWanted(_) => false,
                Message::ContentsWanted(_) => true,
                _ => continue,
            };
            let said = lie.iter().filter(|m| matches!(m, Message::Contents(_)) == is_of_contents);
            // A client that has found the lie may be gone.
            let _ = channel.send_all(said.cloned()).await;
        }
    }
}

/// A tree of one file of patterns, and content for it that is longer than the file.
pub fn too_long_content() -> Lie {
    let mut lie = tree(&[".gitignore"]);
    if let Some(Message::TreeEnd(end)) = lie.last_mut() {
        end.small_max = Some(65_536);
    }
    let files = vec![SmallContent { content: Some(b"**".to_vec()), sums: None, kept: None }];
    lie.push(Message::Contents(Contents { files }));
    lie
}

/// Lies that nobody may believe, with what each claims.
pub fn all_lies() -> Vec<(&'static str, Lie)> {
    let mut lies: Vec<(&str, Lie)> = vec![
        ("upwards", tree(&["../outside/x"])),
        ("upwards within", tree(&["d/", "d/../../outside/x"])),
        ("absolute", tree(&["/outside/x"])),
        ("a name of a transfer's own", tree(&["x.gtp-journal"])),
        ("through a link", tree(&["l@", "l/x"])),
        ("through a file", tree(&["f", "f/x"])),
        ("twice", tree(&["f", "f"])),
        ("a file and a directory of one name", tree(&["n", "n/"])),
        ("a directory and a link of one name", tree(&["n/", "n@"])),
        ("in a directory that was not told", tree(&["d/x"])),
    ];
    let count = |total| vec![tree(&["f"]).remove(0), end(total)];
    lies.push(("fewer than there are", count(1)));
    lies.push(("many more than there are", count(ENTRIES_MAX)));
    lies.push(("no end of pages", vec![tree(&["f"]).remove(0); 3]));
    let owners = vec![TreeOwner { uid: 0, gid: 0 }];
    let dirs = vec![TreeAlike { before: 1, number: 0, same: Vec::new(), owners }];
    let nodes = vec![node("", NodeKind::Directory)];
    let page = TreePage { nodes, alike: Some(AlikeList { dirs }) };
    lies.push(("alike, though nothing was said", vec![Message::TreePage(page), end(1)]));
    lies.push(("another answer", vec![Message::Cancel]));
    lies
}
