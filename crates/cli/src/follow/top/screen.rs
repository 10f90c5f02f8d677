//! The screen as a pure function of the answer and the size.
//!
//! From top to bottom: a title (or a banner, when nobody answers), jobs and control plane, the fleet, tenants, the
//! jobs that run, the queue. What does not fit is cut from the tenants first, because they are few and slow; the two
//! lists of jobs divide what is left and scroll.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Margin, Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use wharf_api::v1::Summary;

use super::lists::{self, List, rows_in};
use super::parts;
use crate::render::numbers::moment;
use crate::render::output::Tone;

/// The smallest size that holds everything.
pub(super) const SIZE_MIN: Size = Size { width: 80, height: 24 };
/// The most rows of a frame that nobody scrolls.
const HEIGHT_MAX: u16 = 2000;
/// Title, jobs and control plane.
const TITLE_ROWS: u16 = 1;
const HEAD_ROWS: u16 = 4;
/// The least rows of a list of jobs, with its head, as long as others can give.
const LIST_ROWS_MIN: u16 = lists::HEAD_ROWS + 3;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Who is asked.
    pub(super) server: &'a str,
    /// The last answer; `None` before the first.
    pub(super) summary: Option<&'a Summary>,
    /// Why that answer is old.
    pub(super) trouble: Option<&'a str>,
    /// How far the lists are scrolled.
    pub(super) scroll: Scroll,
    /// Whether somebody can press keys.
    pub(super) live: bool,
}

/// How far each list is scrolled, and which one the keys move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scroll {
    /// Running jobs above the screen.
    pub(super) running: usize,
    /// Waiting jobs above the screen.
    pub(super) queue: usize,
    /// The list that the keys move.
    pub(super) focus: List,
}

impl Scroll {
    /// Both lists from their beginning.
    pub(super) const START: Self = Self { running: 0, queue: 0, focus: List::Queue };

    /// What is above the screen in the list that the keys move.
    pub(super) fn focused(&mut self) -> &mut usize {
        match self.focus {
            List::Running => &mut self.running,
            List::Queue => &mut self.queue,
        }
    }
}

/// How a tone looks here.
pub(super) fn style(tone: Tone) -> Style {
    let plain = Style::new();
    let plain = tone.colour().map_or(plain, |colour| plain.fg(Color::Indexed(colour)));
    if tone == Tone::Strong { plain.add_modifier(Modifier::BOLD) } else { plain }
}

/// The whole screen.
pub(super) fn frame(view: &View<'_>, size: Size) -> Buffer {
    let area = Rect::new(0, 0, size.width, size.height);
    let mut buffer = Buffer::empty(area);
    if size.width < SIZE_MIN.width || size.height < SIZE_MIN.height && view.live {
        let text = format!("the window is {size}, and has to be {SIZE_MIN} at least; q quits");
        Paragraph::new(text).wrap(Wrap { trim: true }).render(area, &mut buffer);
        return buffer;
    }
    let areas = areas(view, area);
    title(view, areas.title, &mut buffer);
    let Some(summary) = view.summary else {
        let text = Line::from("waiting for the first answer …").style(style(Tone::Faint));
        text.render(areas.head.inner(Margin::new(1, 1)), &mut buffer);
        footer(view, areas.foot, &mut buffer);
        return buffer;
    };
    // A list may have become shorter since somebody scrolled.
    let first =
        |list: List, above: usize, area: Rect| above.min(list.len(summary).saturating_sub(rows_in(area)));
    let Scroll { running, queue, focus: _ } = view.scroll;
    parts::head(summary, areas.head, &mut buffer);
    parts::fleet(summary, areas.fleet, &mut buffer);
    parts::tenants(summary, areas.tenants, &mut buffer);
    lists::running(summary, first(List::Running, running, areas.running), areas.running, &mut buffer);
    lists::queue(summary, first(List::Queue, queue, areas.queue), areas.queue, &mut buffer);
    footer(view, areas.foot, &mut buffer);
    buffer
}

/// How many jobs of the list that the keys move are on the screen.
pub(super) fn focused_rows(view: &View<'_>, size: Size) -> usize {
    let areas = areas(view, Rect::new(0, 0, size.width, size.height));
    match view.scroll.focus {
        List::Running => rows_in(areas.running),
        List::Queue => rows_in(areas.queue),
    }
}

/// The rows that show everything.
pub(super) fn height_wanted(summary: &Summary) -> u16 {
    let Wanted { fleet, tenants, running, queue } = Wanted::by(summary);
    let lists = fleet.saturating_add(tenants).saturating_add(running).saturating_add(queue);
    lists.saturating_add(TITLE_ROWS + HEAD_ROWS).min(HEIGHT_MAX)
}

/// The rows that each part would like to have.
#[derive(Default)]
struct Wanted {
    fleet: u16,
    tenants: u16,
    running: u16,
    queue: u16,
}

impl Wanted {
    fn by(summary: &Summary) -> Self {
        let list = |count: usize| if count == 0 { 0 } else { rows(count) + lists::HEAD_ROWS };
        Self {
            fleet: 1 + rows(parts::pools(summary).count()),
            tenants: list(parts::lines(summary).count()),
            running: list(summary.active.len()).max(lists::HEAD_ROWS),
            queue: list(summary.queue.len()).max(lists::HEAD_ROWS),
        }
    }
}

/// Where everything is.
struct Areas {
    title: Rect,
    head: Rect,
    fleet: Rect,
    tenants: Rect,
    running: Rect,
    queue: Rect,
    foot: Rect,
}

fn areas(view: &View<'_>, area: Rect) -> Areas {
    let wanted = view.summary.map(Wanted::by).unwrap_or_default();
    let foot = u16::from(view.live);
    let fixed = TITLE_ROWS + HEAD_ROWS + foot;
    let lists = wanted.running.min(LIST_ROWS_MIN) + wanted.queue.min(LIST_ROWS_MIN);
    let spare = area.height.saturating_sub(fixed + lists);
    // Where not all fits, the fleet has half: a fleet of many models is read in `wharf get nodes`.
    let fleet = wanted.fleet.min(spare.saturating_sub(wanted.tenants).max(spare / 2));
    let tenants = wanted.tenants.min(spare.saturating_sub(fleet));
    let left = area.height.saturating_sub(fixed + fleet + tenants);
    // Each list has half, and what the other does not need.
    let running = wanted.running.min(left.saturating_sub(wanted.queue).max(left / 2));
    let [title, head, fleet, tenants, running, queue, foot] = Layout::vertical([
        Constraint::Length(TITLE_ROWS),
        Constraint::Length(HEAD_ROWS),
        Constraint::Length(fleet),
        Constraint::Length(tenants),
        Constraint::Length(running),
        Constraint::Fill(1),
        Constraint::Length(foot),
    ])
    .areas(area);
    Areas { title, head, fleet, tenants, running, queue, foot }
}

fn title(view: &View<'_>, area: Rect, buffer: &mut Buffer) {
    // Reversed is legible on any background.
    let reversed = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let look = if view.trouble.is_some() { reversed.patch(style(Tone::Bad)) } else { reversed };
    buffer.set_style(area, look);
    if let Some(trouble) = view.trouble {
        return Line::from(format!(" {trouble}")).render(area, buffer);
    }
    Line::from(format!(" wharf top  {}", view.server)).render(area, buffer);
    if let Some(summary) = view.summary {
        let clock = Line::from(format!("{} ", moment(summary.now_ms))).alignment(Alignment::Right);
        clock.render(area, buffer);
    }
}

fn footer(view: &View<'_>, area: Rect, buffer: &mut Buffer) {
    let (moved, other) = match view.scroll.focus {
        List::Running => ("the running jobs", "the queue"),
        List::Queue => ("the queue", "the running jobs"),
    };
    let keys = format!(" q quit   ↑ ↓ PgUp PgDn Home End move through {moved}   Tab {other}");
    Line::from(keys).style(style(Tone::Faint)).render(area, buffer);
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(HEIGHT_MAX).min(HEIGHT_MAX)
}
