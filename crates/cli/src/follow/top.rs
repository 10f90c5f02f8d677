//! `wharf top`: the whole fleet on one screen, live.
//!
//! A thread asks for the summary every second; this one draws the last answer and listens to keys, so that a slow
//! or lost control plane never freezes the screen. What is drawn is a pure function of the answer and the size, in
//! [`screen`].

mod lists;
mod parts;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use ratatui::layout::Size;
use wharf_api::client::{Client, ClientError, why_silent};
use wharf_api::v1::Summary;

use crate::args::TopArgs;
use crate::render::numbers::span;
use crate::render::output;
use screen::{Scroll, View, frame};

/// How often the control plane is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a key may go unanswered and a number may be stale on the screen.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// An answer that is older is no longer live.
const STALE_AFTER: Duration = Duration::from_secs(4);
/// Columns of a frame where nobody says how many there are.
const COLUMNS_DEFAULT: u16 = 100;

/// Runs it.
pub(crate) fn run(client: &Client, args: &TopArgs) -> anyhow::Result<ExitCode> {
    if args.once || !std::io::stdout().is_terminal() {
        let summary = client.summary()?;
        output::print(&once(client.server(), &summary, columns()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (sender, news) = sync_channel(1);
    let asking = client.clone();
    std::thread::Builder::new()
        .name("top-ask".into())
        .spawn(move || ask(&asking, &sender))
        .context("cannot start a thread that asks the control plane")?;
    // Also restores the terminal when something panics.
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let result = Live::new(client.server()).run(&mut terminal, &news);
    ratatui::restore();
    result?;
    Ok(ExitCode::SUCCESS)
}

/// One frame as plain text, as high as it needs to be.
fn once(server: &str, summary: &Summary, columns: u16) -> String {
    let view = View { server, summary: Some(summary), trouble: None, scroll: Scroll::START, live: false };
    let size = Size { width: columns.max(screen::SIZE_MIN.width), height: screen::height_wanted(summary) };
    text(&frame(&view, size))
}

/// The characters of a frame, line by line.
fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area().width.max(1));
    let rows = buffer.content().chunks(width);
    let lines: Vec<String> =
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect();
    output::lines(&lines)
}

fn columns() -> u16 {
    let of_terminal =
        || terminal::size().ok().map(|(columns, _)| columns).filter(|_| std::io::stdout().is_terminal());
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    of_terminal().or(said).unwrap_or(COLUMNS_DEFAULT)
}

/// What came of a question.
type News = Result<Summary, ClientError>;

/// Asks until nobody listens.
fn ask(client: &Client, sender: &SyncSender<News>) {
    while sender.send(client.summary()).is_ok() {
        std::thread::sleep(ASK_EVERY);
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Up(usize),
    Down(usize),
    First,
    Last,
    OtherList,
}

fn wish(key: KeyEvent, page: usize) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Up(1)),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Down(1)),
        KeyCode::PageUp => Some(Wish::Up(page)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(Wish::Down(page)),
        KeyCode::Home => Some(Wish::First),
        KeyCode::End => Some(Wish::Last),
        KeyCode::Tab | KeyCode::BackTab => Some(Wish::OtherList),
        _ => None,
    }
}

/// What is on the screen.
struct Live<'a> {
    server: &'a str,
    summary: Option<Summary>,
    /// When the last good answer came; at first, when we began to ask.
    good_at: Instant,
    /// Why there was none since.
    error: Option<String>,
    scroll: Scroll,
}

impl<'a> Live<'a> {
    fn new(server: &'a str) -> Self {
        Self { server, summary: None, good_at: Instant::now(), error: None, scroll: Scroll::START }
    }

    fn run(&mut self, terminal: &mut DefaultTerminal, news: &Receiver<News>) -> anyhow::Result<()> {
        let colour = output::colour_is_welcome();
        loop {
            for answer in news.try_iter() {
                self.learn(answer);
            }
            let trouble = self.trouble();
            let mut page = 1;
            let drawn = terminal.draw(|to| {
                let size = to.area().as_size();
                let view = View {
                    server: self.server,
                    summary: self.summary.as_ref(),
                    trouble: trouble.as_deref(),
                    scroll: self.scroll,
                    live: true,
                };
                page = screen::focused_rows(&view, size).max(1);
                let drawn = frame(&view, size);
                to.buffer_mut().merge(&if colour { drawn } else { without_colour(drawn) });
            });
            drawn.context("cannot draw on the terminal")?;
            if !event::poll(DRAW_EVERY).context("cannot listen to the terminal")? {
                continue;
            }
            let Event::Key(key) = event::read().context("cannot listen to the terminal")? else { continue };
            match wish(key, page) {
                Some(Wish::Quit) => return Ok(()),
                Some(wish) => self.move_by(wish, page),
                None => {}
            }
        }
    }

    fn learn(&mut self, answer: News) {
        match answer {
            Ok(summary) => {
                self.good_at = Instant::now();
                self.error = None;
                self.summary = Some(summary);
            }
            Err(ClientError::Unreachable { source, .. }) => self.error = Some(why_silent(&source).to_owned()),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// What the banner says.
    fn trouble(&self) -> Option<String> {
        let silent = self.good_at.elapsed();
        if self.error.is_none() && silent < STALE_AFTER {
            return None;
        }
        let silent = span(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX));
        let why = self.error.as_deref().map(|error| format!(" ({error})")).unwrap_or_default();
        Some(format!("no answer from {} for {silent}, trying again{why}", self.server))
    }

    fn move_by(&mut self, wish: Wish, page: usize) {
        let length = self.summary.as_ref().map_or(0, |summary| self.scroll.focus.len(summary));
        let last = length.saturating_sub(page);
        let above = self.scroll.focused();
        let to = match wish {
            Wish::Quit => *above,
            Wish::Up(rows) => above.saturating_sub(rows),
            Wish::Down(rows) => above.saturating_add(rows),
            Wish::First => 0,
            Wish::Last => last,
            Wish::OtherList => {
                self.scroll.focus = self.scroll.focus.other();
                return;
            }
        };
        *above = to.min(last);
    }
}

/// The same picture for readers who want no colour; bold and reversed stay.
fn without_colour(mut buffer: Buffer) -> Buffer {
    for cell in &mut buffer.content {
        cell.fg = ratatui::style::Color::Reset;
        cell.bg = ratatui::style::Color::Reset;
    }
    buffer
}

#[cfg(test)]
mod tests;
