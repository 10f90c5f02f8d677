//! The screen as a pure function of the answer and the size.
//!
//! From top to bottom: a title (or a banner, when nobody answers), jobs and control plane, the fleet, tenants, the
//! queue. What does not fit is cut from the tenants first, because they are few and slow; the queue takes what is
//! left and scrolls.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Margin, Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use wharf_api::v1::Summary;

use super::parts;
use crate::numbers::moment;
use crate::output::Tone;

/// The smallest size that holds everything.
pub(super) const SIZE_MIN: Size = Size { width: 80, height: 24 };
/// The most rows of a frame that nobody scrolls.
const HEIGHT_MAX: u16 = 400;
/// Title, jobs and control plane.
const TITLE_ROWS: u16 = 1;
const HEAD_ROWS: u16 = 4;
/// Rule and titles of columns above a list.
const LIST_HEAD_ROWS: u16 = 2;
/// The least rows of the queue, with its head, as long as others can give.
const QUEUE_ROWS_MIN: u16 = LIST_HEAD_ROWS + 4;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Who is asked.
    pub(super) server: &'a str,
    /// The last answer; `None` before the first.
    pub(super) summary: Option<&'a Summary>,
    /// Why that answer is old.
    pub(super) trouble: Option<&'a str>,
    /// Rows of the queue that are above the screen.
    pub(super) scroll: usize,
    /// Whether somebody can press keys.
    pub(super) live: bool,
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
        footer(view, areas.foot, &Shown { first: 0, count: 0 }, &mut buffer);
        return buffer;
    };
    let count = list_rows(areas.queue);
    // The queue may have become shorter since somebody scrolled.
    let shown = Shown { first: view.scroll.min(summary.queue.len().saturating_sub(count)), count };
    parts::head(summary, areas.head, &mut buffer);
    parts::fleet(summary, areas.fleet, &mut buffer);
    parts::tenants(summary, areas.tenants, &mut buffer);
    parts::queue(summary, shown.first, areas.queue, &mut buffer);
    footer(view, areas.foot, &shown, &mut buffer);
    buffer
}

/// How many jobs of the queue are on the screen.
pub(super) fn queue_rows(view: &View<'_>, size: Size) -> usize {
    list_rows(areas(view, Rect::new(0, 0, size.width, size.height)).queue)
}

/// The rows that show everything.
pub(super) fn height_wanted(summary: &Summary) -> u16 {
    let Wanted { fleet, tenants, queue } = Wanted::by(summary);
    let lists = fleet.saturating_add(tenants).saturating_add(queue);
    lists.saturating_add(TITLE_ROWS + HEAD_ROWS).min(HEIGHT_MAX)
}

/// The rows that each part would like to have.
#[derive(Default)]
struct Wanted {
    fleet: u16,
    tenants: u16,
    queue: u16,
}

impl Wanted {
    fn by(summary: &Summary) -> Self {
        let list = |count: usize| if count == 0 { 0 } else { rows(count) + LIST_HEAD_ROWS };
        Self {
            fleet: 1 + rows(parts::pools(summary).count()),
            tenants: list(parts::lines(summary).count()),
            queue: list(summary.queue.len()).max(LIST_HEAD_ROWS),
        }
    }
}

/// Where everything is.
struct Areas {
    title: Rect,
    head: Rect,
    fleet: Rect,
    tenants: Rect,
    queue: Rect,
    foot: Rect,
}

fn areas(view: &View<'_>, area: Rect) -> Areas {
    let wanted = view.summary.map(Wanted::by).unwrap_or_default();
    let foot = u16::from(view.live);
    let taken = TITLE_ROWS + HEAD_ROWS + foot + wanted.queue.min(QUEUE_ROWS_MIN);
    let spare = area.height.saturating_sub(taken);
    // Where not all fits, the fleet has half: a fleet of many models is read in `wharf get nodes`.
    let fleet = wanted.fleet.min(spare.saturating_sub(wanted.tenants).max(spare / 2));
    let tenants = wanted.tenants.min(spare.saturating_sub(fleet));
    let [title, head, fleet, tenants, queue, foot] = Layout::vertical([
        Constraint::Length(TITLE_ROWS),
        Constraint::Length(HEAD_ROWS),
        Constraint::Length(fleet),
        Constraint::Length(tenants),
        Constraint::Fill(1),
        Constraint::Length(foot),
    ])
    .areas(area);
    Areas { title, head, fleet, tenants, queue, foot }
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

/// Which rows of the queue are on the screen.
struct Shown {
    first: usize,
    count: usize,
}

fn footer(view: &View<'_>, area: Rect, shown: &Shown, buffer: &mut Buffer) {
    let faint = style(Tone::Faint);
    Line::from(" q quit   ↑ ↓ PgUp PgDn Home End move through the queue").style(faint).render(area, buffer);
    let queue_len = view.summary.map_or(0, |summary| summary.queue.len());
    if queue_len > shown.count {
        let range = format!("{}-{} of {queue_len} ", shown.first + 1, shown.first + shown.count);
        Line::from(range).style(faint).alignment(Alignment::Right).render(area, buffer);
    }
}

fn list_rows(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(LIST_HEAD_ROWS))
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(HEIGHT_MAX).min(HEIGHT_MAX)
}
