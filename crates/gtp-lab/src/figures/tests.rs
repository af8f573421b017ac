//! Pages and drawings as they are written: whole, the same again, and with nothing from outside.

use super::*;
use crate::series::{Axis, Cell, Part, Series, Style, Table, Tile, Tone};

fn page() -> Page {
    let mut rates = Figure::new(
        "rates",
        "Rates <of> \"sessions\"",
        Axis::linear("Time, s"),
        Axis::linear("Rate, Mbit/s"),
    );
    let wave = |k: f64| {
        (0..900)
            .map(move |n| f64::from(n) / 100.0)
            .map(move |t| (t, 100.0 * k * (1.0 - (-t).exp()) + 5.0 * (t * 9.0 + k).sin()))
    };
    for k in 0..5 {
        let points: Vec<_> = wave(f64::from(k) + 1.0).collect();
        let band = points.iter().map(|&(t, v)| (t, v - 20.0, v + 20.0)).collect();
        let series = Series::line(format!("s{k}"), "Mbit/s", points);
        rates.series.push(if k == 4 { series.banded(band) } else { series });
        let level = vec![(0.0, 50.0 * f64::from(k)), (4.0, 90.0 * f64::from(k)), (9.0, f64::NAN)];
        rates
            .series
            .push(Series::line("", "Mbit/s", level).styled(Style::Wanted).coloured(k as usize * 2));
    }
    rates.marks = vec![(2.0, "s1 joins".into()), (6.0, "link down".into())];
    rates.note = "Dashed: the max-min share.".into();
    let mut distance =
        Figure::new("distance", "Distance", Axis::linear("Time, s"), Axis::log("D(t)"));
    let fall = (0..90).map(|n| (f64::from(n) / 10.0, 0.8f64.powi(n))).collect();
    distance.series.push(Series::line("distance", "", fall).styled(Style::Step));
    Page {
        title: "A & B".into(),
        lead: "What was done.".into(),
        tiles: vec![Tile { value: Cell::toned("0.9999", Tone::Good), text: "Jain's index".into() }],
        parts: vec![
            Part::Heading("Curves".into()),
            Part::Figure(rates),
            Part::Figure(distance),
            Part::Table(Table {
                title: "Numbers".into(),
                head: vec!["session".into(), "got".into()],
                rows: vec![vec!["</script>".into(), Cell::toned("1", Tone::Bad)]],
                note: String::new(),
            }),
        ],
    }
}

#[test]
fn the_same_page_gives_the_same_bytes() {
    assert_eq!(html(&page()), html(&page()));
    let figure = page().figures().next().cloned().expect("a figure");
    assert_eq!(svg(&figure), svg(&figure));
}

#[test]
fn a_page_fetches_nothing_and_nothing_ends_its_script_early() {
    let html = html(&page());
    for outside in ["src=", "href=", "@import", "url(http", "fetch("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("http").count(), html.matches("http://www.w3.org/2000/svg").count());
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    assert!(html.contains("Rates &lt;of&gt; &quot;sessions&quot;"));
}

#[test]
fn a_drawing_for_paper_stands_alone() {
    let figure = page().figures().next().cloned().expect("a figure");
    let svg = svg(&figure);
    assert!(svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"));
    for foreign in ["var(", "class=\"grid\"", "<script"] {
        assert!(!svg.contains(foreign), "{foreign}");
    }
    assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    assert!(svg.contains(">s1 joins<") && svg.contains("stroke-dasharray=\"5 4\""));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn a_page_and_its_figures_become_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let written = write(&page(), &dir.path().join("deep/er"), "run").expect("written");
    let names: Vec<_> = written.iter().filter_map(|p| p.file_name()?.to_str()).collect();
    assert_eq!(names, ["run.html", "run-rates.svg", "run-distance.svg"]);
    assert!(written.iter().all(|p| p.is_file()));
}
