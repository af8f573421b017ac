//! What was found, for people: lines on the terminal and one page.
//!
//! Both say the same as the files for programs: the claim, our number, the verdict and, where they
//! differ, why. Nothing is decided here.

use super::entry::{Beside, Firmness, Whose};
use super::plot::figures;
use super::real::{Measured, Real};
use super::verdict::{Difference, Finding, Judged, Verdict, list};
use crate::series::{Cell, Page, Part, Table, Tile, Tone};
use gtp_lab::stored::Stored;

/// Every verdict, in the order in which they are counted.
pub const VERDICTS: [Verdict; 7] = [
    Verdict::Pass,
    Verdict::ByConstruction,
    Verdict::Differs,
    Verdict::Unexplained,
    Verdict::Fail,
    Verdict::Waiting,
    Verdict::NotApplicable,
];

/// How many entries have this verdict.
pub fn count(judged: &[Judged], verdict: Verdict) -> usize {
    judged.iter().filter(|one| one.verdict == verdict).count()
}

/// The line of the terminal's table for one entry.
pub fn line(one: &Judged) -> String {
    let kind = one.entry.kind.word();
    let real = one.real.as_ref().map_or("", |real| real.verdict.word());
    let head = format!("{:<15} {real:<11} {:<28} {kind:<8}", one.verdict.word(), one.entry.id);
    format!("{head} {}", summary(one))
}

/// What matters most about an entry, in one line.
pub fn summary(one: &Judged) -> String {
    if let Some(error) = &one.error {
        return error.clone();
    }
    let broken = one.findings.iter().find(|finding| !finding.fine);
    let difference = || {
        let all = one.findings.iter().filter_map(|finding| finding.difference.as_ref());
        let first = all.clone().find(|difference| difference.word() == one.verdict.word());
        first.or(all.clone().next()).map_or_else(String::new, |one| one.text().to_owned())
    };
    match (one.verdict, broken, &one.entry.waiting) {
        (Verdict::Fail, Some(finding), _) => {
            format!("{}: {}, wanted {}", finding.says, finding.found, finding.wanted)
        }
        (Verdict::Differs | Verdict::Unexplained, ..) => difference(),
        (Verdict::ByConstruction, ..) => one.entry.by_construction.clone().unwrap_or_default(),
        (Verdict::Waiting, _, Some(waiting)) => format!("for {}", waiting.what),
        (Verdict::Pass | Verdict::Fail | Verdict::Waiting | Verdict::NotApplicable, ..) => {
            one.entry.title.clone()
        }
    }
}

/// The numbers of each verdict in one line.
pub fn totals(judged: &[Judged]) -> String {
    let each = VERDICTS.map(|verdict| format!("{} {}", count(judged, verdict), verdict.word()));
    let of_real = real_totals(judged).map(|text| format!("; {text}")).unwrap_or_default();
    format!("{}: {}{of_real}", gtp_text::count(judged.len() as u64, "entry"), each.join(", "))
}

/// How many entries that are of a real program have each verdict on their real runs.
fn real_totals(judged: &[Judged]) -> Option<String> {
    let of_real = judged.iter().filter(|one| one.entry.real.is_some()).count();
    let run: Vec<Verdict> =
        judged.iter().filter_map(|one| Some(one.real.as_ref()?.verdict)).collect();
    let each = VERDICTS.into_iter().filter_map(|verdict| {
        let found = run.iter().filter(|&&one| one == verdict).count();
        (found > 0).then(|| format!("{found} {}, ", verdict.word()))
    });
    let each: String = each.collect();
    let not_run = of_real - run.len();
    (of_real > 0)
        .then(|| format!("of {of_real} real programs, run for real: {each}{not_run} not run"))
}

/// Where an entry that is of a real program is run for real.
fn really(real: &Real) -> String {
    let run = match &real.run {
        Some(run) => format!(
            "Through real sockets, at what one machine carries: gtp-measure {run} (as root, on a \
             machine to itself, about {} s). {}",
            real.seconds, real.note
        ),
        None => "No run of this very network with real sockets has been made.".to_owned(),
    };
    format!(
        "The paper measured a real program. The first checks are of the ends of this project over \
         modelled links. {run}"
    )
}

/// What was found for real, with when and where.
fn measured(firmness: Firmness, real: &Measured) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some(error) = &real.error {
        parts.push(Part::Text(format!("For real: nothing could be judged: {error}")));
    }
    if let Some(from) = &real.from {
        let Stored { machine, commit, date, .. } = from;
        let mut table = checks(firmness, &real.findings);
        table.title = format!("Checks of the real run: {}", real.verdict.word());
        table.note = format!("{} Run on {date}, commit {commit}, on {machine}.", table.note);
        parts.push(Part::Table(table));
    }
    parts
}

/// How many entries have each verdict, at the head of a page.
fn tiles(judged: &[&Judged]) -> Vec<Tile> {
    let tile = |verdict: Verdict| {
        let found = judged.iter().filter(|one| one.verdict == verdict).count();
        Tile {
            value: Cell::toned(found.to_string(), tone(verdict)),
            text: verdict.word().to_owned(),
        }
    };
    VERDICTS.map(tile).into()
}

/// The report of several papers as one page, a chapter each.
pub fn book(chapters: &[(&str, &[Judged])]) -> Page {
    let all: Vec<&Judged> = chapters.iter().flat_map(|(_, judged)| *judged).collect();
    let mut book = Page {
        title: "Reproduction of all papers".to_owned(),
        lead: format!(
            "{} entries in {} chapters, one for each paper. In each: what the paper states, what \
             is found here, and whether the two agree.",
            all.len(),
            chapters.len()
        ),
        tiles: tiles(&all),
        parts: Vec::new(),
    };
    for (paper, judged) in chapters {
        let chapter = page(judged, paper);
        book.parts.push(Part::Heading(chapter.title));
        book.parts.push(Part::Text(totals(judged)));
        book.parts.extend(chapter.parts);
    }
    book
}

/// The report as a page.
pub fn page(judged: &[Judged], paper: &str) -> Page {
    let mut page = Page {
        title: format!("Reproduction of {}", text(paper)),
        lead: format!(
            "Each entry is a figure, table, example, theorem or number of the paper: what it \
             states, what is found here, and whether the two agree. \u{201c}Pass\u{201d} means \
             that they do, within the tolerances given; \u{201c}by construction\u{201d}, that they \
             do because it was put in; \u{201c}differs\u{201d}, that they do \
             not, that the reason is known, and that the reason itself is checked; \
             \u{201c}unexplained\u{201d}, that they do not and nobody knows why; \
             \u{201c}fail\u{201d}, that a claim or a stated reason does not hold; \
             \u{201c}waiting\u{201d}, that this program lacks something; \u{201c}not \
             applicable\u{201d}, that nothing could be checked. One entry alone: \
             gtp-lab repro --paper {paper} ENTRY --out FOLDER."
        ),
        tiles: tiles(&judged.iter().collect::<Vec<_>>()),
        parts: vec![Part::Table(overview(judged))],
    };
    judged.iter().for_each(|one| page.parts.extend(parts(one)));
    page
}

/// What a folder's name stands for.
fn text(paper: &str) -> &str {
    match paper {
        "thesis" => "Wu, Distributed Fair Bandwidth Sharing for Lambda Networks (PhD thesis, 2007)",
        "gtp2004" => "Wu and Chien, GTP: Group Transport Protocol for Lambda-Grids (2004)",
        "aecp" => "Huang et al., bandwidth allocation by alternating evolution: AECP (2010)",
        "lambdastream" => "Xiong et al., LambdaStream",
        "sabul" => "Oothongsap, Viniotis and Vouk, analysis of SABUL congestion control",
        other => other,
    }
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Pass => Tone::Good,
        Verdict::Differs => Tone::Odd,
        Verdict::Fail | Verdict::Unexplained => Tone::Bad,
        Verdict::ByConstruction | Verdict::Waiting | Verdict::NotApplicable => Tone::Plain,
    }
}

fn overview(judged: &[Judged]) -> Table {
    let row = |one: &Judged| {
        let verdict = Cell::toned(one.verdict.word(), tone(one.verdict));
        let entry = &one.entry;
        let real = one.real.as_ref().map(|real| real.verdict);
        let real = match (real, &entry.real) {
            (Some(verdict), _) => Cell::toned(verdict.word(), tone(verdict)),
            (None, Some(_)) => Cell::from("not run"),
            (None, None) => Cell::from(""),
        };
        vec![
            verdict,
            real,
            Cell::leading(entry.id.clone()),
            Cell::from(entry.place.clone()),
            Cell::from(entry.kind.word()),
            Cell::from(summary(one)),
        ]
    };
    Table {
        title: "All entries".to_owned(),
        head: ["Verdict", "For real", "Entry", "Place", "Computed by", "What"]
            .map(str::to_owned)
            .into(),
        rows: judged.iter().map(row).collect(),
        note: String::new(),
    }
}

/// Everything about one entry.
fn parts(one: &Judged) -> Vec<Part> {
    let entry = &one.entry;
    let mut parts = vec![
        Part::Heading(format!("{}: {} ({})", entry.id, entry.title, one.verdict.word())),
        Part::Text(format!("{}: {}", entry.place, entry.claim)),
    ];
    if !entry.note.is_empty() {
        parts.push(Part::Text(entry.note.clone()));
    }
    if let Some(why) = &entry.by_construction {
        parts.push(Part::Text(format!("By construction: {why}")));
    }
    if let Some(real) = &entry.real {
        parts.push(Part::Text(really(real)));
    }
    if let Some(waiting) = &entry.waiting {
        parts.push(Part::Text(format!("Waits for {}. {}", waiting.what, waiting.why)));
    }
    if let Some(reason) = &entry.not_applicable {
        parts.push(Part::Text(format!("Nothing to check. {}", reason.why)));
    }
    if let Some(error) = &one.error {
        parts.push(Part::Text(format!("Could not be computed: {error}")));
    }
    if !one.findings.is_empty() {
        parts.push(Part::Table(checks(entry.firmness, &one.findings)));
    }
    if let Some(real) = &one.real {
        parts.extend(measured(entry.firmness, real));
    }
    let rows: Vec<Vec<Cell>> = entry.beside.iter().map(|beside| both_laws(beside, one)).collect();
    if !rows.is_empty() {
        parts.push(Part::Table(Table {
            title: "The grant law on the same networks".to_owned(),
            head: ["", "the thesis's law", "the grant law", "unit"].map(str::to_owned).into(),
            rows,
            note: String::new(),
        }));
    }
    parts.extend(super::table::parts(&entry.table, &one.computed.quantities));
    parts.extend(figures(entry, &one.computed).into_iter().map(Part::Figure));
    parts
}

fn checks(firmness: Firmness, findings: &[Finding]) -> Table {
    let row = |finding: &Finding| {
        let (text, tone) = match (finding.fine, &finding.difference) {
            (false, _) => ("no", Tone::Bad),
            (true, Some(one @ Difference::Explained(_))) => (one.word(), Tone::Odd),
            (true, Some(one @ Difference::Unexplained(_))) => (one.word(), Tone::Bad),
            (true, None) => ("yes", Tone::Good),
        };
        let remark = finding.difference.as_ref().map_or(finding.why.as_str(), Difference::text);
        vec![
            Cell::from(finding.says.clone()),
            Cell::from(whose(finding.whose)),
            Cell::from(finding.wanted.clone()),
            Cell::from(finding.found.clone()),
            Cell::toned(text, tone),
            Cell::from(remark.to_owned()),
        ]
    };
    let firmness = match firmness {
        Firmness::Exact => "The paper is exact about this.",
        Firmness::Quantitative => "The paper gives numbers.",
        Firmness::Qualitative => "The paper has words only; the numbers are a reading of them.",
    };
    Table {
        title: "Checks".to_owned(),
        head: ["Claim", "Whose", "Criterion", "Found", "Holds", "Why"].map(str::to_owned).into(),
        rows: findings.iter().map(row).collect(),
        note: firmness.to_owned(),
    }
}

fn whose(whose: Whose) -> &'static str {
    match whose {
        Whose::Ours => "as it follows",
        Whose::Printed => "as printed",
        Whose::Cause => "cause of a difference",
    }
}

fn both_laws(beside: &Beside, one: &Judged) -> Vec<Cell> {
    let value = |name: &str| {
        one.computed.quantities.get(name).map_or("not computed".to_owned(), |x| list(x))
    };
    vec![
        Cell::from(beside.says.clone()),
        Cell::from(value(&beside.of)),
        Cell::from(value(&format!("grant_{}", beside.of))),
        Cell::from(beside.unit.clone()),
    ]
}
