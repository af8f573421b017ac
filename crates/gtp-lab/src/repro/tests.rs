//! All entries together: none is missing, and none fails.

use super::entry::{Cost, Entry, load, parse};
use super::verdict::{Judged, judge};
use super::{data, judge_all, report};
use crate::series::Part;
use crate::verbs::pool;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Papers whose entries are complete, with what their ids begin with.
const PAPERS: [(&str, &str); 5] = [
    ("thesis", "thesis-"),
    ("gtp2004", "gtp04-"),
    ("aecp", "aecp-"),
    ("lambdastream", "lambdastream-"),
    ("sabul", "sabul-"),
];

fn of(paper: &str) -> Vec<Entry> {
    load(&root().join("repro"), paper).expect("every entry can be read")
}

fn entries() -> Vec<Entry> {
    PAPERS.iter().flat_map(|(paper, _)| of(paper)).collect()
}

/// The cheap ones; with `GTP_LONG=1` all of them, which takes minutes in an optimised build.
#[test]
fn no_entry_fails() {
    let long = std::env::var_os("GTP_LONG").is_some_and(|value| value == "1");
    let chosen = entries().into_iter().filter(|entry| long || entry.cost == Cost::Cheap);
    let judged = judge_all(chosen.collect(), pool::cores(), |_| {});
    let wrong: Vec<String> =
        judged.into_iter().filter(Judged::failed).map(|one| report::line(&one)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the index lists has an entry, and its row names it.
#[test]
fn every_result_in_the_index_has_an_entry_and_names_it() {
    let index = std::fs::read_to_string(root().join("PAPERS.md")).expect("the index");
    for (paper, prefix) in PAPERS {
        let mut listed = BTreeSet::new();
        let row = format!("| `{prefix}");
        for line in index.lines().filter(|line| line.starts_with(&row)) {
            for id in line.split('|').nth(1).unwrap_or("").split('`').skip(1).step_by(2) {
                assert!(line.contains(&format!("`repro/{paper}/{id}/entry.toml`")), "{id}");
                listed.insert(id.to_owned());
            }
        }
        let there: BTreeSet<String> = of(paper).into_iter().map(|entry| entry.id).collect();
        assert_eq!(listed, there);
    }
}

#[test]
fn what_an_entry_says_wrongly_is_refused() {
    let head = "title = 't'\nplace = 'p'\nclaim = 'c'\nfirmness = 'exact'\n";
    let check = "[[check]]\nsays = 's'\nof = 'x'\nmust = { is = 'rises' }\n";
    let refused = |text: &str| parse("id", &format!("{head}{text}")).is_err();
    assert!(!refused(&format!("kind = 'formula'\n{check}")));
    assert!(refused("kind = 'formula'"), "nothing is checked");
    assert!(refused("kind = 'nothing'"), "waits for nothing");
    let never = "[not_applicable]\nwhy = 'a drawing'\n";
    assert!(!refused(&format!("kind = 'nothing'\n{never}")));
    assert!(refused(&format!("kind = 'formula'\n{check}{never}")), "checked all the same");
    let both = format!("kind = 'nothing'\n{never}[waiting]\nwhat = 'w'\nwhy = 'y'\n");
    assert!(refused(&both), "waits for what never comes");
    assert!(refused(&format!("kind = 'formula'\n{check}differs = 'd'")), "without a cause");
    let both = format!("kind = 'formula'\n{check}differs = 'd'\nunexplained = 'u'\n");
    assert!(refused(&format!("{both}{check}whose = 'cause'\n")), "explained and not");
    let both = format!("{check}whose = 'cause'\ndiffers = 'd'\n");
    assert!(refused(&format!("kind = 'formula'\n{both}")), "its own cause");
    let cause = format!("{check}whose = 'cause'\n");
    assert!(refused(&format!("kind = 'formula'\n{both}{cause}")), "whatever is beside it");
    for tried in [
        "[[law]]\nproperty = 'target'\n",
        "[[aecp]]\nwhat = 'law'\nname = 'l'\nrtt_ms = 1\n",
        "[[sabul]]\nwhat = 'equations'\nname = 'e'\n",
        "[[sabul]]\nwhat = 'lemma'\nname = 'l'\nnumber = 1\n",
    ] {
        let with = |cases: u32| format!("kind = 'law'\n{tried}cases = {cases}\nseed = 1\n{check}");
        assert!(!refused(&with(1)), "{tried}");
        assert!(refused(&with(0)), "tried on no case: {tried}");
    }
    assert!(refused(&format!("kind = 'formula'\ncolour = 1\n{check}")), "an unknown field");
    assert!(refused(&format!("kind = 'formula'\n{check}[[scenario]]\nnetwork = {{}}")));
    assert!(refused(&format!("kind = 'formula'\n{}", check.replace("rises", "grows"))));
}

#[test]
fn pages_and_files_say_what_was_found() {
    let entry = entries().into_iter().find(|entry| entry.id == "thesis-fig-VII.3");
    let judged = [judge(entry.expect("the entry"))];
    let page = report::page(&judged, "thesis");
    assert_eq!(page.figures().count(), 2, "one for each law");
    let json = serde_json::to_value(data::json(&judged, "thesis")).expect("a value");
    assert_eq!(json["passed"], 1);
    assert_eq!(json["entries"][0]["verdict"], "pass");
}

#[test]
fn a_report_of_all_papers_has_a_chapter_each() {
    let one = |paper: &str| {
        let mut all = of(paper);
        all.retain(|entry| entry.kind == super::entry::Kind::Nothing);
        [judge(all.remove(0))]
    };
    let judged = super::PAPERS.map(one);
    let chapters: Vec<_> = super::PAPERS.into_iter().zip(judged.iter().map(|x| &x[..])).collect();
    let book = report::book(&chapters);
    for (paper, of) in &chapters {
        let chapter = report::page(of, paper);
        let heading = |part: &Part| matches!(part, Part::Heading(text) if *text == chapter.title);
        assert_eq!(book.parts.iter().filter(|part| heading(part)).count(), 1, "{paper}");
        assert!(chapter.parts.len() > 1, "{paper}");
    }
    let folders: BTreeSet<&str> = PAPERS.iter().map(|(paper, _)| *paper).collect();
    assert_eq!(folders, super::PAPERS.into_iter().collect(), "none is left out");
}

/// What the parser says it would have taken in place of a word that it does not know.
fn choices(entry: &str) -> Vec<String> {
    let head = "title = 't'\nplace = 'p'\nclaim = 'c'\n";
    let complaint = match parse("id", &format!("{head}{entry}")) {
        Err(complaint) => complaint,
        Ok(entry) => {
            let scenarios = entry.scenario.iter().filter_map(|scenario| scenario.expand().err());
            let rivals = entry.rivals.iter().filter_map(|rivals| rivals.expand().err());
            scenarios.chain(rivals).next().expect("a complaint")
        }
    };
    let (_, expected) = complaint.split_once("expected").expect("what would have been right");
    // A line after it may say where.
    let expected = expected.lines().next().unwrap_or("");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_guide_names_all_that_entries_may_say() {
    let head = "firmness = 'exact'\nkind = 'rate'\n";
    let rivals = |field: &str, flow: &str, read: &str| {
        let read = format!("read = [{{ name = 'x', of = {{ {read} }} }}]");
        let check = "[[check]]\nsays = 's'\nof = 'x'\nmust = { is = 'rises' }\n";
        let head = head.replace("'rate'", "'rivals'");
        format!(
            "{head}{check}[[rivals]]\n{read}\n[rivals.network]\n{field}\nflows = [{{ {flow} }}]\n"
        )
    };
    let flow = "protocol = 'tcp', rtt_ms = 1";
    let measure = |read: &str| format!("{head}[[measure]]\nname = 'x'\nread = {{ {read} }}\n");
    let cases = [
        "zzz = 1".to_owned(),
        "kind = 'zzz'".to_owned(),
        "kind = 'rate'\nfirmness = 'zzz'".to_owned(),
        format!("{head}plot = ['zzz']"),
        format!("{head}[[check]]\nsays = 's'\nof = 'x'\nmust = {{ is = 'zzz' }}"),
        format!("{head}[[check]]\nzzz = 1"),
        format!("{head}[[law]]\nproperty = 'zzz'"),
        format!("{head}[[exact]]\nproperty = 'zzz'"),
        measure("what = 'zzz'"),
        measure("what = 'phase-share', last = 1, phases = 'zzz'"),
        format!("{head}[[measure]]\nname = 'x'\nread = {{ what = 'done' }}\nfold = 'zzz'"),
        format!(
            "{head}[[check]]\nsays = 's'\nof = 'x'\nmust = {{ is = 'rises' }}\n\
                 [[scenario]]\nnetwork = {{ zzz = 1 }}"
        ),
        format!("{head}[[scenario]]\nzzz = 1"),
        format!("{head}[[gtp2004]]\nproperty = 'zzz'"),
        format!("{head}[[lambdastream]]\nproperty = 'zzz'"),
        format!("{head}[[rivals]]\nzzz = 1"),
        rivals("", flow, "what = 'zzz'"),
        rivals("zzz = 1", flow, "what = 'done'"),
        rivals("skew = 'zzz'", flow, "what = 'done'"),
        rivals("", "zzz = 1", "what = 'done'"),
        rivals("", "protocol = 'zzz'", "what = 'done'"),
        rivals("", "delivery = 'zzz'", "what = 'done'"),
        rivals("", "reader = { zzz = 1 }", "what = 'done'"),
    ];
    all_named(&cases);
}

#[test]
fn the_guide_names_all_that_aecp_sabul_tables_and_files_may_say() {
    let head = "firmness = 'exact'\nkind = 'rate'\n";
    let cases = [
        "[[aecp]]\nwhat = 'zzz'",
        "[[aecp]]\nwhat = 'efficiency'\nzzz = 1",
        "[[aecp]]\nwhat = 'fairness'\nzzz = 1",
        "[[aecp]]\nwhat = 'swing'\nzzz = 1",
        "[[aecp]]\nwhat = 'rest'\nzzz = 1",
        "[[aecp]]\nwhat = 'network'\nzzz = 1",
        "[[aecp]]\nwhat = 'network'\nflows = [{ zzz = 1 }]",
        "[[aecp]]\nwhat = 'logistic'\nzzz = 1",
        "[[aecp]]\nwhat = 'law'\nzzz = 1",
        "[[aecp_packets]]\nzzz = 1",
        "[[aecp_packets]]\nprotocols = ['zzz']",
        "[[aecp_packets]]\nlinks = [{ zzz = 1 }]",
        "[[aecp_packets]]\nflows = [{ zzz = 1 }]",
        "[[aecp_packets]]\nbeside = [{ zzz = 1 }]",
        "[[aecp_packets]]\nread = [{ what = 'zzz' }]",
        "[[aecp_packets]]\nread = [{ what = 'rates', zzz = 1 }]",
        "[[aecp_packets]]\nread = [{ what = 'settle', zzz = 1 }]",
        "[[aecp_packets]]\nread = [{ what = 'use', zzz = 1 }]",
        "[[sabul]]\nwhat = 'zzz'",
        "[[sabul]]\nwhat = 'equations'\nzzz = 1",
        "[[sabul]]\nwhat = 'lemma'\nzzz = 1",
        "[[sabul]]\nwhat = 'model'\nzzz = 1",
        "[[sabul]]\nwhat = 'model'\nsight = 'zzz'",
        "[[sabul]]\nwhat = 'model'\nconnections = [{ zzz = 1 }]",
        "[[sabul]]\nwhat = 'model'\nconnections = [{ parameters = 'zzz' }]",
        "[[sabul]]\nwhat = 'plane'\nzzz = 1",
        "[[sabul_packets]]\nzzz = 1",
        "[[sabul_packets]]\nparameters = ['zzz']",
        "[[sabul_packets]]\nbursts = { zzz = 1 }",
        "[[sabul_packets]]\nqueue = 'zzz'",
        "[[sabul_packets]]\nexcess = 'zzz'",
        "[[hops]]\nzzz = 1",
        "[[hops]]\ndrawn = { zzz = 1 }",
        "[[hops]]\nlinks = [{ zzz = 1 }]",
        "[[hops]]\nlinks = [{ follows = 'zzz' }]",
        "[[hops]]\nsessions = [{ zzz = 1 }]",
        "[[lightpaths]]\nzzz = 1",
        "[[lightpaths]]\nmeasured = 'zzz'",
        "[[played]]\ncapacity = { zzz = 1 }",
        "[[played]]\ncapacity = { follows = 'zzz' }",
        "[[played]]\nzzz = 1",
        "[[played]]\nruns = [{ zzz = 1 }]",
        "[[table]]\nzzz = 1",
        "[[table]]\ncolumn = [{ zzz = 1 }]",
    ];
    all_named(&cases.map(|case| format!("{head}{case}")));
}

/// Every word that each case could have had in place of `zzz` stands in the guide.
fn all_named(cases: &[String]) {
    let guide = std::fs::read_to_string(root().join("repro/README.md")).expect("the guide");
    for case in cases {
        let choices = choices(case);
        assert!(choices.len() > 1, "{case}: {choices:?}");
        for word in choices {
            let named = [format!("`{word}`"), format!("[{word}]"), format!("`{word} =")];
            assert!(named.iter().any(|name| guide.contains(name)), "{word} of {case}");
        }
    }
}
