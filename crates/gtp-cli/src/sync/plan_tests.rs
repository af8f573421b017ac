//! What the plan does, case by case and for random trees.
//!
//! Random plans are carried out on lists of nodes by a model of a tree that refuses what a file
//! system would refuse.

use proptest::prelude::*;

use super::*;

fn node(path: &str, kind: NodeKind) -> Node {
    Node {
        path: (!path.is_empty()).then(|| RelPath::new(path).unwrap()),
        size: if kind == NodeKind::File { 5 } else { 0 },
        kind,
        mode: 0o644,
        mtime: Mtime::new(100, 7).unwrap(),
        uid: 1,
        gid: 1,
        same: None,
        hash: None,
        xattrs: Vec::new(),
    }
}

fn tree(names: &[&str]) -> Vec<Node> {
    let mut nodes = vec![node("", NodeKind::Dir)];
    for name in names {
        nodes.push(match name.strip_suffix('/') {
            Some(dir) => node(dir, NodeKind::Dir),
            None => node(name, NodeKind::File),
        });
    }
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    nodes
}

fn of(source: &[Node], destination: &[Node], rules: Rules) -> Plan {
    plan(source, destination, &HashSet::new(), rules)
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.items.iter().map(|item| format!("{} {}", item.change, item.path)).collect()
}

const DELETE: Rules = Rules {
    delete: true,
    checksum: false,
    modify_window_s: 0,
    time_step: TimeStep::EXACT,
    hard_links: false,
    owner: false,
    xattrs: false,
    acls: false,
    sparse: false,
};

#[test]
fn equal_trees_need_nothing() {
    let tree = tree(&["a", "d/", "d/f"]);
    let plan = of(&tree, &tree, DELETE);
    assert!(plan.is_empty() && plan.removals() == 0 && plan.files.is_empty());
}

#[test]
fn a_directory_that_loses_its_sticky_bit_is_not_left_open_to_others() {
    let mut source = tree(&["a"]);
    source[0].mode = 0o1777;
    let modes = |there: &[Node]| {
        let plan = of(&source, there, Rules::default());
        let mode = |deed| if let Deed::Dress(dress) = deed { dress.mode } else { None };
        let dressed = plan.dressed_dirs.into_iter().filter_map(mode);
        dressed.collect::<Vec<_>>()
    };
    let with = |mode| {
        let mut there = source.clone();
        there[0].mode = mode;
        there
    };
    assert_eq!(modes(&with(0o777)), [0o755]);
    assert!(modes(&with(0o755)).is_empty(), "a second run has nothing to do");
    assert!(modes(&with(0o1777)).is_empty(), "somebody has set it there");
}

#[test]
fn a_time_that_the_destination_cuts_is_the_same_and_another_content_is_aged_beyond_the_cut() {
    let there = tree(&["a"]);
    let mut source = there.clone();
    source[1].mtime = Mtime::new(101, 9).unwrap();
    let coarse = TimeStep::known().last().unwrap();
    let rules = Rules { time_step: coarse, ..Rules::default() };
    let mut kept = there.clone();
    kept[1].mtime = coarse.of(source[1].mtime);
    assert!(of(&source, &kept, rules).is_empty());
    assert_eq!(lines(&of(&source, &kept, Rules::default())), [">f..t...... a"]);
    (source[1].hash, kept[1].hash) = (Some([1; 32]), Some([2; 32]));
    let plan = of(&source, &kept, Rules { checksum: true, ..rules });
    assert_eq!((lines(&plan), plan.aged.len()), (vec![">fc........ a".to_owned()], 1));
    let [Deed::Dress(aged)] = &plan.aged[..] else { panic!("{:?}", plan.aged) };
    assert_ne!(coarse.of(aged.mtime.unwrap()), kept[1].mtime);
}

#[test]
fn a_file_differs_by_size_time_or_hash_and_one_nanosecond_is_enough() {
    let there = tree(&["a"]);
    let changed = |change: &dyn Fn(&mut Node)| {
        let mut source = there.clone();
        change(&mut source[1]);
        source
    };
    let longer = changed(&|node| node.size = 6);
    assert_eq!(lines(&of(&longer, &there, Rules::default())), [">f.s....... a"]);
    let later = changed(&|node| node.mtime = Mtime::new(100, 8).unwrap());
    assert_eq!(lines(&of(&later, &there, Rules::default())), [">f..t...... a"]);
    let window = Rules { modify_window_s: 1, ..Rules::default() };
    assert!(of(&later, &there, window).is_empty());
    let mode = changed(&|node| node.mode = 0o600);
    let plan = of(&mode, &there, Rules::default());
    assert_eq!((lines(&plan), plan.files.len()), (vec![".f...p..... a".to_owned()], 0));
    let checksum = Rules { checksum: true, ..Rules::default() };
    let (mut source, mut hashed) = (later.clone(), there.clone());
    (source[1].hash, hashed[1].hash) = (Some([1; 32]), Some([1; 32]));
    assert_eq!(lines(&of(&source, &hashed, checksum)), [".f..t...... a"], "only its time is set");
    hashed[1].hash = Some([2; 32]);
    (source[1].mtime, hashed[1].mtime) = (there[1].mtime, there[1].mtime);
    let plan = of(&source, &hashed, checksum);
    assert_eq!((lines(&plan), plan.aged.len()), (vec![">fc........ a".to_owned()], 1));
}

#[test]
fn what_the_source_has_not_goes_only_where_that_was_asked_for_and_directories_last() {
    let (source, there) = (tree(&["a"]), tree(&["a", "d/", "d/e/", "d/e/f", "x"]));
    assert!(of(&source, &there, Rules::default()).is_empty());
    let plan = of(&source, &there, DELETE);
    let removed: Vec<&str> = plan.removed.iter().map(Deed::name).collect();
    assert_eq!(removed, ["x", "d/e/f", "d/e", "d"]);
    assert_eq!(plan.removals(), 4);
    let protected = HashSet::from(["d/e".to_owned()]);
    let kept = super::plan(&source, &there, &protected, DELETE);
    let removed: Vec<&str> = kept.removed.iter().map(Deed::name).collect();
    assert_eq!(removed, ["x", "d/e/f"], "a directory with something protected stays");
}

#[test]
fn what_is_not_removed_after_all_has_no_backup_elsewhere() {
    let mut plan = of(&tree(&["a"]), &tree(&["a", "x"]), DELETE);
    let kept = |name| (RelPath::new(name).unwrap(), RelPath::new("old").unwrap());
    plan.kept = vec![kept("a"), kept("x")];
    plan.remove_nothing();
    assert_eq!((plan.removals(), plan.kept), (0, vec![kept("a")]));
}

#[test]
fn what_is_of_another_kind_is_removed_first_and_a_full_directory_only_with_delete() {
    let mut source = tree(&["a/", "a/f", "b", "c"]);
    source[4].kind = NodeKind::Link(b"elsewhere".to_vec());
    let there = tree(&["a", "b/", "b/x", "c"]);
    let plan = of(&source, &there, Rules::default());
    let first: Vec<&str> = plan.obstacles.iter().map(Deed::name).collect();
    assert_eq!(first, ["a", "c"]);
    assert_eq!(plan.unkept.len(), 1, "{:?}", plan.unkept);
    assert!(!plan.files.contains_key("b") && plan.files.contains_key("a/f"));
    let plan = of(&source, &there, DELETE);
    let first: Vec<&str> = plan.obstacles.iter().map(Deed::name).collect();
    assert_eq!((first, plan.removals()), (vec!["a", "b/x", "b", "c"], 4));
    assert!(plan.files.contains_key("b") && plan.unkept.is_empty());
}

#[test]
fn a_file_with_several_names_is_moved_once_and_linked_where_it_is_not() {
    let mut source = tree(&["a", "b", "c"]);
    for node in &mut source[1..] {
        node.same = Some(9);
    }
    let rules = Rules { hard_links: true, ..Rules::default() };
    let plan = of(&source, &tree(&[]), rules);
    assert_eq!(lines(&plan), [">f+++++++++ a", "hf+++++++++ b", "hf+++++++++ c"]);
    assert_eq!((plan.files.len(), plan.names.len()), (1, 2));
    let mut there = source.clone();
    assert!(of(&source, &there, rules).is_empty());
    there[2].same = None;
    assert_eq!(lines(&of(&source, &there, rules)), ["hf+++++++++ b"]);
    assert_eq!(of(&source, &tree(&[]), Rules::default()).files.len(), 3);
}

#[test]
fn links_keep_their_targets_and_are_never_files() {
    let link = |target: &str| {
        let mut nodes = tree(&["l"]);
        nodes[1].kind = NodeKind::Link(target.into());
        nodes[1].size = 0;
        nodes
    };
    let plan = of(&link("../../etc"), &tree(&[]), DELETE);
    assert_eq!((lines(&plan), plan.files.len()), (vec!["cL+++++++++ l".to_owned()], 0));
    assert!(of(&link("x"), &link("x"), DELETE).is_empty());
    let plan = of(&link("x"), &link("y"), DELETE);
    assert_eq!(lines(&plan), ["cLc.t...... l"]);
    assert!(matches!(&plan.links[..], [Deed::Remove { .. }, Deed::Link { .. }]));
}

#[test]
fn what_cannot_be_kept_is_said_and_never_done() {
    let mut source = tree(&["a", "p"]);
    source[1].mode = 0o4755;
    source[2].kind = NodeKind::Special;
    let plan = of(&source, &tree(&[]), Rules::default());
    assert_eq!(plan.unkept.len(), 2);
    let dressed = plan.dressed.iter().all(|deed| match deed {
        Deed::Dress(dress) => dress.mode.is_none_or(|mode| mode <= 0o777),
        Deed::MakeDir { .. }
        | Deed::Remove { .. }
        | Deed::Move { .. }
        | Deed::Link { .. }
        | Deed::HardLink { .. }
        | Deed::Dig { .. }
        | Deed::Write { .. }
        | Deed::Patch { .. }
        | Deed::Keep { .. } => false,
    });
    assert!(dressed && plan.files.len() == 1);
    let mut there = tree(&["x"]);
    there[1].kind = NodeKind::Special;
    let plan = of(&tree(&[]), &there, DELETE);
    assert_eq!((plan.removals(), plan.unkept.len()), (0, 1));
}

fn any_tree() -> impl Strategy<Value = Vec<Node>> {
    let name = "[ab](/[ab]){0,3}";
    let one = (name, 0..3_u8, 0..3_u64, 0..2_u8);
    proptest::collection::vec(one, 0..12).prop_map(|raw| {
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        nodes.insert(String::new(), node("", NodeKind::Dir));
        for (path, kind, size, mode) in raw {
            let parents: Vec<String> =
                path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect();
            let fits = parents.iter().all(|dir| nodes.get(dir).is_none_or(Node::is_dir));
            if !fits || nodes.contains_key(&path) {
                continue;
            }
            for dir in parents {
                nodes.entry(dir.clone()).or_insert_with(|| node(&dir, NodeKind::Dir));
            }
            let kind = match kind {
                0 => NodeKind::Dir,
                1 => NodeKind::Link(vec![b'x'; size as usize + 1]),
                _ => NodeKind::File,
            };
            let mut made = node(&path, kind);
            made.size = if made.is_file() { size } else { 0 };
            made.mode = 0o600 + u32::from(mode);
            nodes.insert(path, made);
        }
        nodes.into_values().collect()
    })
}

/// Carries a plan out on a list of nodes, as a tree would: what is wrong is an error.
fn carry_out(plan: &Plan, source: &[Node], there: &[Node]) -> Result<Vec<Node>, String> {
    let mut nodes: BTreeMap<String, Node> =
        there.iter().map(|node| (node.name().to_owned(), node.clone())).collect();
    let from = |path: &str| source.iter().find(|node| node.name() == path).cloned();
    let step = |nodes: &mut BTreeMap<String, Node>, deed: &Deed| {
        let name = deed.name().to_owned();
        match deed {
            Deed::Remove { seen, .. } => {
                let node = nodes.get(&name).ok_or(format!("{name}: nothing to remove"))?;
                if Seen::of(node) != Some(*seen) {
                    return Err(format!("{name}: is not what was seen"));
                }
                let prefix = format!("{name}/");
                if nodes.keys().any(|other| other.starts_with(&prefix)) {
                    return Err(format!("{name}: is not empty"));
                }
                nodes.remove(&name);
            }
            Deed::MakeDir { .. } => drop(nodes.insert(name.clone(), node(&name, NodeKind::Dir))),
            Deed::Link { target, .. } => {
                if nodes.contains_key(&name) {
                    return Err(format!("{name}: is there"));
                }
                nodes.insert(name.clone(), node(&name, NodeKind::Link(target.clone())));
            }
            Deed::Dress(dress) => {
                let node = nodes.get_mut(&name).ok_or(format!("{name}: nothing to dress"))?;
                node.mtime = dress.mtime.unwrap_or(node.mtime);
                node.mode = dress.mode.unwrap_or(node.mode);
            }
            Deed::Move { .. }
            | Deed::HardLink { .. }
            | Deed::Dig { .. }
            | Deed::Write { .. }
            | Deed::Patch { .. }
            | Deed::Keep { .. } => {}
        }
        Ok(())
    };
    for deed in plan.obstacles.iter().chain(&plan.dirs).chain(&plan.aged) {
        step(&mut nodes, deed)?;
    }
    for path in plan.files.keys() {
        let holder = nodes.get(parent(path)).is_some_and(Node::is_dir);
        let is_free = nodes.get(path).is_none_or(Node::is_file);
        if !holder || !is_free {
            return Err(format!("{path}: cannot be written"));
        }
        nodes.insert(path.clone(), from(path).ok_or("a file that the source has not")?);
    }
    let rest = plan.links.iter().chain(&plan.dressed).chain(&plan.removed);
    for deed in rest.chain(&plan.dressed_dirs) {
        step(&mut nodes, deed)?;
    }
    Ok(nodes.into_values().collect())
}

proptest! {
    #[test]
    fn a_plan_with_delete_makes_any_tree_like_any_other_and_the_next_is_empty(
        source in any_tree(), there in any_tree(),
    ) {
        let plan = of(&source, &there, DELETE);
        let mut after = carry_out(&plan, &source, &there).map_err(TestCaseError::fail)?;
        after.sort_by(|a, b| a.name().cmp(b.name()));
        prop_assert_eq!(after.len(), source.len());
        for (one, other) in after.iter().zip(&source) {
            let what = |node: &Node| (node.name().to_owned(), node.kind.clone(), node.size);
            let (one, other) = (what(one), what(other));
            prop_assert_eq!(one, other);
        }
        prop_assert!(of(&source, &after, DELETE).is_empty());
    }

    #[test]
    fn a_plan_without_delete_removes_only_what_is_in_the_way(
        source in any_tree(), there in any_tree(),
    ) {
        let plan = of(&source, &there, Rules::default());
        prop_assert!(plan.removed.is_empty());
        for deed in &plan.obstacles {
            prop_assert!(source.iter().any(|node| node.name() == deed.name()));
        }
        carry_out(&plan, &source, &there).map_err(TestCaseError::fail)?;
    }
}
