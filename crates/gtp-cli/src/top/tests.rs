//! What `gtp top` draws, into a buffer of a given width.
//!
//! These tests must not need a terminal or a daemon.

use super::*;
use gtp_share::ClientView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn session(id: u32, measured: u64) -> SessionView {
    SessionView {
        session: id,
        uid: 1000,
        pid: 42,
        program: "gtp get".into(),
        label: format!("gtp://host/{id}"),
        direction: "in".into(),
        weight: 1.0,
        flat_weight: 0.5,
        peer_weight: 1.0,
        max_rate: None,
        transfer_max_rate: None,
        transfer_guarantee: 0,
        policy: gtp_share::Policy::Normal,
        demand: None,
        peer_offer: None,
        granted: Some(2 * measured),
        measured,
        limited_by: "sink".into(),
        path: None,
        carrier: "udp".into(),
        loss_ratio: 0.01,
        rtt_us: 50_300,
        wire_bytes: 1,
        client: None,
    }
}

fn drawn(screen: &Screen) -> String {
    drawn_in(screen, 140)
}

fn drawn_in(screen: &Screen, columns: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, 12)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn host() -> HostView {
    HostView {
        capacity_out: None,
        capacity_in: Some(100_000_000),
        used_out: 0,
        used_in: 60_000_000,
        guaranteed: 0,
        processes: 2,
        sessions: 2,
    }
}

#[test]
fn every_session_is_shown_with_what_it_has_and_what_limits_it_fastest_first() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![session(1, 10_000_000), session(2, 50_000_000)])));
    let text = drawn(&screen);
    for part in ["2 processes, 2 sessions", "60.0 Mbit/s of 100", "50.3ms", "1.00%", "this host"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.find("gtp://host/2") < text.find("gtp://host/1"), "{text}");
    screen.next_order();
    screen.next_order();
    let text = drawn(&screen);
    assert!(text.find("gtp://host/1") < text.find("gtp://host/2"), "{text}");
}

#[test]
fn a_client_that_is_served_is_shown_by_its_name_and_its_groups() {
    let client = ClientView {
        name: "anna".into(),
        groups: "lab,two".into(),
        weight: 2.0,
        max_rate: None,
        group_max_rate: Some(9_000_000),
        group_guarantee: 0,
    };
    let mut screen = Screen::new();
    let served = SessionView { client: Some(client), ..session(1, 10_000_000) };
    screen.look(Ok((host(), vec![served])));
    assert!(drawn_in(&screen, 160).contains("anna [lab,two], gtp://host/1"), "{}", drawn(&screen));
}

#[test]
fn a_wide_terminal_shows_paths_too() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![session(1, 10_000_000)])));
    let text = drawn_in(&screen, 180);
    assert!(text.contains("PATH") && text.contains("gtp://host/1 (gtp get)"), "{text}");
    assert!(!drawn_in(&screen, 150).contains("PATH"));
}

#[test]
fn the_last_hour_is_shown_by_user_with_the_newest_minute_at_the_end() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![session(1, 10_000_000)])));
    screen.turn_over();
    let row = |uid, rates| HistoryView { uid, direction: "out".into(), rates };
    let hour = vec![row(Some(1000), vec![0, 40_000_000, 5_000_000]), row(None, vec![7; 60])];
    let key = |name: &str, key| KeyView {
        uid: 1000,
        key,
        name: name.into(),
        groups: if name.is_empty() { "" } else { "lab" }.into(),
        direction: "out".into(),
        rates: vec![2_000_000],
    };
    let keys = [("anna", Some("0a".repeat(8))), ("", Some("0b".repeat(8))), ("", None)];
    let keys = keys.map(|(name, number)| key(name, number)).to_vec();
    screen.hour = Some(Ok(hour_of(hour, keys)));
    let text = drawn(&screen);
    for part in ["1000", "5.0 Mbit/s", "40.0 Mbit/s", " █▁", "others", "h shows the sessions"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let order = ["1000", " anna [lab]", " key 0b0b0b0b", " other clients", "others"];
    let at = order.map(|part| text.find(part));
    assert!(at.is_sorted() && at[0].is_some(), "{at:?} in {text}");
    assert!(text.contains(&"█".repeat(60)) && !text.contains("gtp://host/1"), "{text}");
    assert_eq!(curve(&[0, 1, 4, 8], 60).trim_start(), "▁▄█");
    assert_eq!(curve(&[8, 1, 4], 2), "▁▄", "by the peak of the whole hour");
    assert_eq!(curve(&[], HISTORY_COLUMNS).chars().count(), HISTORY_COLUMNS);
    screen.hour = Some(Err("not a request that this daemon knows".into()));
    assert!(drawn(&screen).contains("not a request that this daemon knows"));
    screen.turn_over();
    assert!(drawn(&screen).contains("gtp://host/1"));
}

#[test]
fn a_daemon_that_is_gone_is_said_and_what_was_known_stays() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![session(1, 10_000_000)])));
    screen.look(Err(Failure::new(FailureKind::Temporary, "no daemon runs here")));
    let text = drawn(&screen);
    assert!(text.contains("no daemon runs here") && text.contains("gtp://host/1"), "{text}");
    screen.scroll(-3);
    screen.scroll(9);
    assert_eq!(screen.first, 0);
}

/// The lines of a screen so many columns wide.
fn lines_in(screen: &Screen, columns: u16) -> Vec<String> {
    let text = drawn_in(screen, columns);
    let lines: Vec<String> = text.lines().map(|line| line.trim_matches('"').to_owned()).collect();
    let fits = |line: &String| console::measure_text_width(line) == usize::from(columns);
    assert!(lines.iter().all(fits), "{text}");
    lines
}

/// A session that is served, with a name that no width here has room for.
fn long_named() -> SessionView {
    let label = format!("home/{}run42.h5", "a-directory/".repeat(12));
    SessionView { label, measured: 123_456_789, ..session(7, 1) }
}

#[test]
fn each_width_shows_what_matters_most_whole_and_cuts_names_with_a_mark() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![long_named()])));
    let shows = [
        (60, vec!["ID", "MEASURED", "LIMITED BY", "SESSION"]),
        (80, vec!["ID", "DIRECTION", "GRANTED", "MEASURED", "LIMITED BY", "SESSION"]),
        (
            120,
            vec![
                "ID",
                "USER",
                "DIRECTION",
                "DEMAND",
                "GRANTED",
                "MEASURED",
                "LIMITED BY",
                "LOSS",
                "RTT",
                "SESSION",
            ],
        ),
    ];
    for (width, titles) in shows {
        let lines = lines_in(&screen, width);
        let words = lines[3].replace("LIMITED BY", "LIMITED_BY");
        let shown: Vec<&str> = words.split_whitespace().collect();
        let titles: Vec<String> = titles.iter().map(|title| title.replace(' ', "_")).collect();
        assert_eq!(shown, titles, "{width}");
        let row = &lines[4];
        let figures = [("MEASURED", "123 Mbit/s "), ("ID", "7 "), ("LIMITED_BY", "this host ")];
        let more = [("LOSS", "1.00% "), ("RTT", "50.3ms "), ("USER", "1000 "), ("DEMAND", "- ")];
        for (title, figure) in figures.into_iter().chain(more) {
            let at = words.find(title).filter(|_| shown.contains(&title));
            assert!(at.is_none_or(|at| row[at..].starts_with(figure)), "{title} in {row}");
        }
        assert!(row.contains(" home/a-dir") && row.trim_end().ends_with('…'), "{row}");
        assert!(lines[1].contains("0 bit/s of -") && lines[2].contains("60.0 Mbit/s of 100"));
    }
}

#[test]
fn a_wider_screen_shows_all_that_a_narrower_one_does() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), vec![long_named(), session(4_000_000_000, 9)])));
    let titles = |width| -> Vec<String> {
        lines_in(&screen, width)[3].split_whitespace().map(str::to_owned).collect()
    };
    for width in 60..200 {
        let (narrow, wide) = (titles(width), titles(width + 1));
        assert!(narrow.iter().all(|title| wide.contains(title)), "{width}: {narrow:?} {wide:?}");
        assert!(lines_in(&screen, width).iter().any(|line| line.contains("4000000000 ")));
    }
}

#[test]
fn the_last_hour_has_its_curve_at_each_width() {
    let mut screen = Screen::new();
    screen.look(Ok((host(), Vec::new())));
    let past = |whose: &str| Past {
        whose: whose.into(),
        direction: "out".into(),
        rates: [vec![400_000_000; 59], vec![200_000_000]].concat(),
    };
    screen.hour = Some(Ok(vec![past("1000"), past(" anna-with-a-long-name [lab,night]")]));
    for (width, minutes, titles) in [
        (60, 25, vec!["USER, KEYS", "DIRECTION", "MINUTE", "LAST 25 MIN"]),
        (80, 33, vec!["USER, KEYS", "DIRECTION", "MINUTE", "PEAK", "LAST 33 MIN"]),
        (120, 60, vec!["USER, KEYS", "DIRECTION", "MINUTE", "PEAK", "LAST HOUR"]),
    ] {
        let lines = lines_in(&screen, width);
        assert!(titles.iter().all(|title| lines[3].contains(title)), "{titles:?} in {}", lines[3]);
        let curve = format!("{}▄", "█".repeat(minutes - 1));
        assert!(lines[4].contains(&format!(" {curve}")) && lines[5].contains(&curve), "{lines:#?}");
        assert!(lines[4].contains("out") && lines[4].contains("200 Mbit/s"), "{}", lines[4]);
        assert!(lines[5].starts_with(" anna-with-") && lines[5].contains('…'), "{}", lines[5]);
    }
}

#[test]
fn messages_wrap_between_words_and_lose_nothing() {
    let said = "No gtpd runs here; start it: gtpd (or have transfers start it: --daemon start). \
                Without it each process allocates for itself";
    let mut screen = Screen::new();
    screen.look(Err(Failure::new(FailureKind::Temporary, said)));
    for width in [60, 80, 120] {
        let lines = lines_in(&screen, width).join(" ");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let shown = words(&lines);
        assert_eq!(shown[..words(said).len()], words(said), "{width}");
        assert!(shown.ends_with(&words("h shows the last hour, up and down scroll")), "{lines}");
    }
    assert_eq!(columns::wrapped("ab abcdef c", 4), ["ab", "abc…", "c"]);
    assert_eq!(columns::wrapped("", 4), [""]);
}
