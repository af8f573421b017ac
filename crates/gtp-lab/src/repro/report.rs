//! What was found, for people: lines on the terminal and one page.
//!
//! Both say the same as the files for programs: the claim, our number, the verdict and, where they
//! differ, why. Nothing is decided here.

use super::entry::{Beside, Firmness, Whose};
use super::plot::figures;
use super::verdict::{Finding, Judged, Verdict, list};
use crate::series::{Cell, Page, Part, Table, Tile, Tone};

/// Every verdict, in the order in which they are counted.
const ALL: [Verdict; 5] =
    [Verdict::Pass, Verdict::Differs, Verdict::Fail, Verdict::Waiting, Verdict::NotApplicable];

/// How many entries have this verdict.
pub fn count(judged: &[Judged], verdict: Verdict) -> usize {
    judged.iter().filter(|one| one.verdict == verdict).count()
}

/// The line of the terminal's table for one entry.
pub fn line(one: &Judged) -> String {
    let kind = one.entry.kind.word();
    let head = format!("{:<14} {:<28} {kind:<8}", one.verdict.word(), one.entry.id);
    format!("{head} {}", summary(one))
}

/// What matters most about an entry, in one line.
fn summary(one: &Judged) -> String {
    if let Some(error) = &one.error {
        return error.clone();
    }
    let broken = one.findings.iter().find(|finding| !finding.fine);
    let differs = one.findings.iter().find(|finding| finding.differs.is_some());
    match (one.verdict, broken, differs, &one.entry.waiting) {
        (Verdict::Fail, Some(finding), _, _) => {
            format!("{}: {}, wanted {}", finding.says, finding.found, finding.wanted)
        }
        (Verdict::Differs, _, Some(finding), _) => finding.differs.clone().unwrap_or_default(),
        (Verdict::Waiting, _, _, Some(waiting)) => format!("for {}", waiting.what),
        (
            Verdict::Pass
            | Verdict::Differs
            | Verdict::Fail
            | Verdict::Waiting
            | Verdict::NotApplicable,
            ..,
        ) => one.entry.title.clone(),
    }
}

/// The numbers of each verdict in one line.
pub fn totals(judged: &[Judged]) -> String {
    let each = ALL.map(|verdict| format!("{} {}", count(judged, verdict), verdict.word()));
    let modelled = judged.iter().filter(|one| one.entry.real.is_some()).count();
    let modelled = match modelled {
        0 => String::new(),
        some => format!(" ({some} are of a real program and judged in the simulator)"),
    };
    format!("{}: {}{modelled}", gtp_text::count(judged.len() as u64, "entry"), each.join(", "))
}

/// Where an entry that is of a real program is run for real.
fn really(run: Option<&str>) -> String {
    let run = match run {
        Some(run) => format!(
            "Through real sockets, at what one machine carries: {run} (as root, on a machine to \
             itself)."
        ),
        None => "No run of this very network with real sockets has been made.".to_owned(),
    };
    format!(
        "The paper measured a real program. Judged here: the ends of this project over modelled \
         links. {run}"
    )
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
    ALL.map(tile).into()
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
             that they do, within the tolerances given; \u{201c}differs\u{201d}, that they do \
             not, that the reason is known, and that the reason itself is checked; \
             \u{201c}fail\u{201d}, that they do not and no run shows why; \
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
        Verdict::Fail => Tone::Bad,
        Verdict::Waiting | Verdict::NotApplicable => Tone::Plain,
    }
}

fn overview(judged: &[Judged]) -> Table {
    let row = |one: &Judged| {
        let verdict = Cell::toned(one.verdict.word(), tone(one.verdict));
        let entry = &one.entry;
        vec![
            verdict,
            Cell::leading(entry.id.clone()),
            Cell::from(entry.place.clone()),
            Cell::from(entry.kind.word()),
            Cell::from(summary(one)),
        ]
    };
    Table {
        title: "All entries".to_owned(),
        head: ["Verdict", "Entry", "Place", "Computed by", "What"].map(str::to_owned).into(),
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
    if let Some(real) = &entry.real {
        parts.push(Part::Text(really(real.run.as_deref())));
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
        let (text, tone) = match (finding.fine, finding.differs.is_some()) {
            (false, _) => ("no", Tone::Bad),
            (true, true) => ("differs", Tone::Odd),
            (true, false) => ("yes", Tone::Good),
        };
        let remark = finding.differs.as_ref().unwrap_or(&finding.why);
        vec![
            Cell::from(finding.says.clone()),
            Cell::from(whose(finding.whose)),
            Cell::from(finding.wanted.clone()),
            Cell::from(finding.found.clone()),
            Cell::toned(text, tone),
            Cell::from(remark.clone()),
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
