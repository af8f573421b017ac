//! `gtp top`: all sessions of this machine, live on a terminal.
//!
//! It asks the daemon twice a second and draws what it hears; a daemon that goes away is said so,
//! and looked for again. Drawing is a function of the last answer, so that it is tested without a
//! terminal.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gtp::{Failure, FailureKind, Rate};
use gtp_share::{HISTORY_COLUMNS, HistoryView, HostView, KeyView, SessionView};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Row, Table};

use crate::daemon::{Which, ask_history, ask_keys, ask_sessions, say_session, which};
use crate::words;

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The daemon's socket
    #[arg(long, value_name = "WHICH", env = "GTP_DAEMON", value_parser = which)]
    pub daemon: Option<Which>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = words::span)]
    pub every: Duration,
}

/// What is on the screen.
struct Screen {
    host: Option<HostView>,
    sessions: Vec<SessionView>,
    trouble: Option<String>,
    first: usize,
    order: Order,
    /// The last hour, in place of the sessions, or why it is not known.
    hour: Option<Result<Vec<Past>, String>>,
}

/// What a user, or a client of a user's servers, moved in one direction in the last hour.
struct Past {
    whose: String,
    direction: String,
    rates: Vec<u64>,
}

/// Users, and behind each the keys of the clients of the user's servers.
fn hour_of(users: Vec<HistoryView>, keys: Vec<KeyView>) -> Vec<Past> {
    let told: Vec<Option<u32>> = users.iter().map(|row| row.uid).collect();
    let mut keys: Vec<(Option<u32>, KeyView)> = keys
        .into_iter()
        .map(|key| (Some(key.uid).filter(|uid| told.contains(&Some(*uid))), key))
        .collect();
    let mut rows = Vec::new();
    for (at, HistoryView { uid, direction, rates }) in users.into_iter().enumerate() {
        let whose = uid.map_or_else(|| "others".to_owned(), |uid| uid.to_string());
        rows.push(Past { whose, direction, rates });
        if told.get(at + 1) == Some(&uid) {
            continue; // Its other direction.
        }
        let (of_user, others) = keys.into_iter().partition(|(whose, _)| *whose == uid);
        keys = others;
        rows.extend(of_user.into_iter().map(|(_, key)| Past {
            whose: format!(" {}", say_key(&key)),
            direction: key.direction,
            rates: key.rates,
        }));
    }
    rows
}

/// The name of a client, the beginning of its key where that is not known, or that these are all
/// others.
fn say_key(key: &KeyView) -> String {
    match (&key.key, key.name.as_str(), key.groups.as_str()) {
        (None, _, _) => "other clients".to_owned(),
        (Some(key), "", _) => format!("key {:.8}", key),
        (Some(_), name, "") => name.to_owned(),
        (Some(_), name, groups) => format!("{name} [{groups}]"),
    }
}

/// What sessions are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The order in which they came.
    Came,
    /// Fastest first.
    Measured,
    /// User, then process.
    User,
}

/// `gtp top`.
///
/// # Errors
/// When standard output is no terminal, or the terminal fails.
pub fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() {
        let text = "gtp top needs a terminal; `gtp sessions` prints the same once";
        return Err(Failure::new(FailureKind::Usage, text));
    }
    let mut terminal = ratatui::try_init().map_err(crate::verbs::other)?;
    let ended = watch(&mut terminal, args);
    ratatui::restore();
    ended.map_err(crate::verbs::other)?;
    Ok(ExitCode::SUCCESS)
}

fn watch(terminal: &mut ratatui::DefaultTerminal, args: &TopArgs) -> std::io::Result<()> {
    let mut screen = Screen::new();
    loop {
        screen.look(ask_sessions(&args.daemon));
        if screen.hour.is_some() {
            let users = ask_history(&args.daemon);
            let hour = users.and_then(|users| Ok(hour_of(users, ask_keys(&args.daemon)?)));
            screen.hour = Some(hour.map_err(|failure| failure.text));
        }
        terminal.draw(|frame| screen.draw(frame))?;
        let mut left = args.every;
        while event::poll(left)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if control => return Ok(()),
                KeyCode::Char('s') => screen.next_order(),
                KeyCode::Char('h') => {
                    screen.turn_over();
                    break; // The hour is asked for at once.
                }
                KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
                KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
                _ => {}
            }
            terminal.draw(|frame| screen.draw(frame))?;
            left /= 2; // Keys do not put the next look off for ever.
        }
    }
}

impl Screen {
    fn new() -> Screen {
        let (sessions, order) = (Vec::new(), Order::Measured);
        Screen { host: None, sessions, trouble: None, first: 0, order, hour: None }
    }

    /// Shows the last hour in place of the sessions, or these again.
    fn turn_over(&mut self) {
        self.first = 0;
        self.hour = if self.hour.is_some() { None } else { Some(Ok(Vec::new())) };
    }

    /// Takes an answer in; without one what was known stays, and why is shown.
    fn look(&mut self, answer: Result<(HostView, Vec<SessionView>), Failure>) {
        match answer {
            Ok((host, sessions)) => {
                self.host = Some(host);
                self.sessions = sessions;
                self.trouble = None;
                self.sort();
            }
            Err(failure) => self.trouble = Some(failure.text),
        }
        self.scroll(0);
    }

    fn sort(&mut self) {
        match self.order {
            Order::Came => self.sessions.sort_by_key(|s| s.session),
            Order::Measured => self.sessions.sort_by_key(|s| std::cmp::Reverse(s.measured)),
            Order::User => self.sessions.sort_by_key(|s| (s.uid, s.pid, s.session)),
        }
    }

    fn next_order(&mut self) {
        self.order = match self.order {
            Order::Came => Order::Measured,
            Order::Measured => Order::User,
            Order::User => Order::Came,
        };
        self.sort();
    }

    fn scroll(&mut self, lines: isize) {
        let hours = self.hour.as_ref().map(|hour| hour.as_ref().map_or(0, Vec::len));
        let most = hours.unwrap_or(self.sessions.len()).saturating_sub(1);
        self.first = self.first.saturating_add_signed(lines).min(most);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let parts = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ];
        let [head, out, in_, table, foot] = Layout::vertical(parts).areas(frame.area());
        let said = match (&self.trouble, &self.host) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(host)) => {
                let processes = gtp_text::count(host.processes.into(), "process");
                format!("{processes}, {}", gtp_text::count(host.sessions.into(), "session"))
            }
            (None, None) => String::new(),
        };
        frame
            .render_widget(Line::from(said).style(Style::new().add_modifier(Modifier::BOLD)), head);
        if let Some(host) = &self.host {
            gauge(frame, out, "out", host.used_out, host.capacity_out);
            gauge(frame, in_, "in ", host.used_in, host.capacity_in);
        }
        match &self.hour {
            Some(hour) => self.draw_hour(frame, table, hour),
            None => self.draw_table(frame, table),
        }
        let order = match self.order {
            Order::Came => "as they came",
            Order::Measured => "fastest first",
            Order::User => "by user",
        };
        let keys = match self.hour {
            Some(_) => "q ends, h shows the sessions, up and down scroll".to_owned(),
            None => format!("q ends, s sorts ({order}), h shows the last hour, up and down scroll"),
        };
        frame.render_widget(Line::from(keys), foot);
    }

    /// A line for each user, or key, and direction, with a character for each minute.
    fn draw_hour(&self, frame: &mut Frame<'_>, area: Rect, hour: &Result<Vec<Past>, String>) {
        let rows = match hour {
            Ok(rows) => rows,
            Err(why) => return frame.render_widget(Line::from(why.as_str()), area),
        };
        let columns = HISTORY_COLUMNS as u16;
        let widths = [WHOSE, 4, 13, 13, columns].map(Constraint::Length);
        let says = |row: &Past| {
            let (last, peak) = (row.rates.last(), row.rates.iter().max());
            let rate = |bps: Option<&u64>| words::say_rate(Rate::from_bps(*bps.unwrap_or(&0)));
            let Past { whose, direction, rates } = row;
            Row::new([whose.clone(), direction.clone(), rate(last), rate(peak), curve(rates)])
        };
        let title = format!("{:>1$}", "LAST HOUR, ONE COLUMN A MINUTE", HISTORY_COLUMNS);
        let titles = ["USER, KEYS", "WAY", "MINUTE", "PEAK", &title].map(str::to_owned);
        let header = Row::new(titles).style(Style::new().add_modifier(Modifier::REVERSED));
        let rows = rows.iter().skip(self.first).map(says);
        frame.render_widget(Table::new(rows, widths).header(header), area);
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = columns(area.width);
        let widths = columns.iter().map(|column| column.width);
        let rows = self.sessions.iter().skip(self.first);
        let rows =
            rows.map(|session| Row::new(columns.iter().map(|column| (column.says)(session))));
        let header = Row::new(columns.iter().map(|column| column.title));
        let header = header.style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_widget(Table::new(rows, widths).header(header), area);
    }
}

/// Rates as characters of eight heights, by the greatest of them, up to now at the right end.
/// Nothing at all is a space.
fn curve(rates: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let peak = rates.iter().copied().max().unwrap_or(0).max(1);
    let height = |rate: &u64| match rate {
        0 => ' ',
        rate => HEIGHTS[(u128::from(*rate) * 8).div_ceil(peak.into()).clamp(1, 8) as usize - 1],
    };
    let curve: String = rates.iter().map(height).collect();
    format!("{curve:>0$}", HISTORY_COLUMNS)
}

/// Characters of a user's number, or a client's name and groups.
const WHOSE: u16 = 28;

/// A column of the table.
struct Column {
    title: &'static str,
    width: Constraint,
    says: fn(&SessionView) -> String,
}

/// The columns for so many characters. A narrow terminal shows names rather than paths.
fn columns(width: u16) -> Vec<Column> {
    let column = |title, width, says| Column { title, width: Constraint::Length(width), says };
    let mut columns = vec![
        column("ID", 6, |s| s.session.to_string()),
        column("USER", 6, |s| s.uid.to_string()),
        column("PID", 8, |s| s.pid.to_string()),
        column("WAY", 4, |s| s.direction.clone()),
        column("WEIGHT", 8, |s| format!("{:.3}", s.flat_weight)),
        column("DEMAND", 13, |s| limited(s.demand)),
        column("GRANTED", 13, |s| limited(s.granted)),
        column("MEASURED", 13, |s| words::say_rate(Rate::from_bps(s.measured))),
        column("LIMIT", 7, |s| s.limited_by.clone()),
        column("LOSS", 8, |s| format!("{:.2}%", s.loss_ratio * 100.0)),
        column("RTT", 9, |s| format!("{:.1}ms", s.rtt_us as f64 / 1e3)),
    ];
    if width >= WITH_PATHS {
        columns.push(column("PATH", 40, crate::daemon::say_path));
    }
    columns.push(Column { title: "SESSION", width: Constraint::Min(10), says: say_session });
    columns
}

/// A terminal of so many columns has room for paths beside names.
const WITH_PATHS: u16 = 180;

fn limited(bps: Option<u64>) -> String {
    bps.map_or("-".to_owned(), |bps| words::say_rate(Rate::from_bps(bps)))
}

/// How much of a capacity is in use.
fn gauge(frame: &mut Frame<'_>, area: Rect, way: &str, used: u64, capacity: Option<u64>) {
    let part = capacity.map_or(0.0, |c| (used as f64 / (c as f64).max(1.0)).clamp(0.0, 1.0));
    let used = words::say_rate(Rate::from_bps(used));
    let label = format!("{way} {used} of {}", limited(capacity));
    frame.render_widget(Gauge::default().ratio(part).label(label), area);
}

#[cfg(test)]
mod tests {
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
        for part in ["2 processes, 2 sessions", "60.0 Mbit/s of 100", "50.3ms", "1.00%", "sink"] {
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
        assert!(
            drawn_in(&screen, 160).contains("anna [lab,two], gtp://host/1"),
            "{}",
            drawn(&screen)
        );
    }

    #[test]
    fn a_wide_terminal_shows_paths_too() {
        let mut screen = Screen::new();
        screen.look(Ok((host(), vec![session(1, 10_000_000)])));
        let text = drawn_in(&screen, WITH_PATHS);
        assert!(text.contains("PATH") && text.contains("gtp://host/1 (gtp get)"), "{text}");
        assert!(!drawn_in(&screen, WITH_PATHS - 1).contains("PATH"));
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
        for part in ["1000", "5.0 Mbit/s", "40.0 Mbit/s", " █▁", "others", "h shows the sessions"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let order = ["1000", " anna [lab]", " key 0b0b0b0b", " other clients", "others"];
        let at = order.map(|part| text.find(part));
        assert!(at.is_sorted() && at[0].is_some(), "{at:?} in {text}");
        assert!(text.contains(&"█".repeat(60)) && !text.contains("gtp://host/1"), "{text}");
        assert_eq!(curve(&[0, 1, 4, 8]).trim_start(), "▁▄█");
        assert_eq!(curve(&[]).chars().count(), HISTORY_COLUMNS);
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
}
