//! `gtp top`: all sessions of this machine, live on a terminal.
//!
//! It asks the daemon twice a second and draws what it hears; a daemon that goes away is said so,
//! and looked for again. Drawing is a function of the last answer, so that it is tested without a
//! terminal.

mod columns;

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
use ratatui::widgets::{Gauge, Paragraph};

use crate::daemon::{Which, ask_history, ask_keys, ask_sessions, say_session, which};
use crate::words;
use columns::{Column, draw_table, needed, wrapped};

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The daemon's socket, or that of a server's --status
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
            whose: format!(" {}", key.called()),
            direction: key.direction,
            rates: key.rates,
        }));
    }
    rows
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
        let columns = frame.area().width.into();
        let (said, keys) = (wrapped(&self.said(), columns), wrapped(&self.keys(), columns));
        let lines = |lines: &[String]| Constraint::Length(lines.len() as u16);
        let one = Constraint::Length(1);
        let parts = [lines(&said), one, one, Constraint::Min(1), lines(&keys)];
        let [head, out, in_, table, foot] = Layout::vertical(parts).areas(frame.area());
        show(frame, head, said, Style::new().add_modifier(Modifier::BOLD));
        if let Some(host) = &self.host {
            gauge(frame, out, "out", host.used_out, host.capacity_out);
            gauge(frame, in_, "in ", host.used_in, host.capacity_in);
        }
        match &self.hour {
            Some(hour) => self.draw_hour(frame, table, hour),
            None => self.draw_sessions(frame, table),
        }
        show(frame, foot, keys, Style::new());
    }

    /// What is said above all.
    fn said(&self) -> String {
        match (&self.trouble, &self.host) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(host)) => {
                let processes = gtp_text::count(host.processes.into(), "process");
                format!("{processes}, {}", gtp_text::count(host.sessions.into(), "session"))
            }
            (None, None) => String::new(),
        }
    }

    /// What keys do.
    fn keys(&self) -> String {
        let order = match self.order {
            Order::Came => "as they came",
            Order::Measured => "fastest first",
            Order::User => "by user",
        };
        match self.hour {
            Some(_) => "q ends, h shows the sessions, up and down scroll".to_owned(),
            None => format!("q ends, s sorts ({order}), h shows the last hour, up and down scroll"),
        }
    }

    /// A line for each user, or key, and direction, with a character for each minute that fits.
    fn draw_hour(&self, frame: &mut Frame<'_>, area: Rect, hour: &Result<Vec<Past>, String>) {
        let rows = match hour {
            Ok(rows) => rows,
            Err(why) => {
                let why = wrapped(why, area.width.into());
                return show(frame, area, why, Style::new());
            }
        };
        let minutes = shown_minutes(rows, area.width);
        draw_table(frame, area, &hour_columns(minutes), rows, self.first);
    }

    fn draw_sessions(&self, frame: &mut Frame<'_>, area: Rect) {
        draw_table(frame, area, &columns(), &self.sessions, self.first);
    }
}

/// The columns of the sessions, as they stand beside each other.
fn columns() -> Vec<Column<SessionView>> {
    let figure = |rank, title, least, says: fn(&SessionView) -> String| {
        Column::figure(rank, title, least, says)
    };
    vec![
        figure(2, "ID", 4, |s| s.session.to_string()),
        figure(8, "USER", 6, |s| s.uid.to_string()),
        figure(10, "PID", 7, |s| s.pid.to_string()),
        figure(4, "DIRECTION", 3, |s| s.direction.clone()),
        figure(9, "WEIGHT", 7, |s| format!("{:.3}", s.flat_weight)),
        figure(7, "DEMAND", 11, |s| limited(s.demand)),
        figure(5, "GRANTED", 11, |s| limited(s.granted)),
        figure(0, "MEASURED", 11, |s| words::say_rate(Rate::from_bps(s.measured))),
        figure(3, "LIMITED BY", 18, crate::limit::of_session),
        figure(6, "LOSS", 7, |s| format!("{:.2}%", s.loss_ratio * 100.0)),
        figure(6, "RTT", 8, |s| format!("{:.1}ms", s.rtt_us as f64 / 1e3)),
        figure(11, "PATH", 39, crate::daemon::say_path),
        Column::text(1, "SESSION", NAME_LEAST, say_session),
    ]
}

/// Columns of a session's name at least.
const NAME_LEAST: u16 = 20;

/// The columns of the last hour, with a curve of so many minutes.
fn hour_columns(minutes: usize) -> Vec<Column<Past>> {
    let rate = |bps: Option<&u64>| words::say_rate(Rate::from_bps(*bps.unwrap_or(&0)));
    let title = match minutes {
        HISTORY_COLUMNS => "LAST HOUR, ONE COLUMN A MINUTE".to_owned(),
        _ => format!("LAST {minutes} MIN"),
    };
    vec![
        Column::text(1, "USER, KEYS", WHOSE_LEAST, |row: &Past| row.whose.clone()),
        Column::figure(2, "DIRECTION", 3, |row: &Past| row.direction.clone()),
        Column::figure(3, "MINUTE", 11, move |row: &Past| rate(row.rates.last())),
        Column::figure(4, "PEAK", 11, move |row: &Past| rate(row.rates.iter().max())),
        Column::figure(0, &format!("{title:>minutes$}"), 0, move |row: &Past| {
            curve(&row.rates, minutes)
        }),
    ]
}

/// The most minutes of the last hour beside which the other columns have room; a few minutes are
/// shown even where some have none.
fn shown_minutes(rows: &[Past], width: u16) -> usize {
    let others = hour_columns(0);
    let all = (1..others.len()).rev().map(|most| &others[..most]);
    let beside = |columns: &[Column<Past>]| width.saturating_sub(needed(columns, rows) + 1);
    let minutes = all.map(beside).find(|&minutes| minutes >= MINUTES_LEAST);
    usize::from(minutes.unwrap_or(width)).min(HISTORY_COLUMNS)
}

/// Minutes of a curve that say something.
const MINUTES_LEAST: u16 = 24;

/// Rates of the newest minutes as characters of eight heights, by the greatest of the hour, up to
/// now at the right end. Nothing at all is a space.
fn curve(rates: &[u64], minutes: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let peak = rates.iter().copied().max().unwrap_or(0).max(1);
    let height = |rate: &u64| match rate {
        0 => ' ',
        rate => HEIGHTS[(u128::from(*rate) * 8).div_ceil(peak.into()).clamp(1, 8) as usize - 1],
    };
    let newest = &rates[rates.len().saturating_sub(minutes)..];
    let curve: String = newest.iter().map(height).collect();
    format!("{curve:>minutes$}")
}

/// Columns of a user's number, or a client's name and groups, at least.
const WHOSE_LEAST: u16 = 12;

fn limited(bps: Option<u64>) -> String {
    bps.map_or("-".to_owned(), |bps| words::say_rate(Rate::from_bps(bps)))
}

/// Lines from the top of an area.
fn show(frame: &mut Frame<'_>, area: Rect, lines: Vec<String>, style: Style) {
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).style(style), area);
}

/// How much of a capacity is in use.
fn gauge(frame: &mut Frame<'_>, area: Rect, way: &str, used: u64, capacity: Option<u64>) {
    let part = capacity.map_or(0.0, |c| (used as f64 / (c as f64).max(1.0)).clamp(0.0, 1.0));
    let used = words::say_rate(Rate::from_bps(used));
    let label = format!("{way} {used} of {}", limited(capacity));
    frame.render_widget(Gauge::default().ratio(part).label(label), area);
}

#[cfg(test)]
mod tests;
