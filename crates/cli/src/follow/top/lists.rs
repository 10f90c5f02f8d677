//! The two lists of jobs: those that hold places, and those that wait. Their first columns are the same, so that a
//! job can be followed from one to the other.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, Widget};
use wharf_api::v1::{ActiveRow, JobState, QueueRow, Summary, VerdictWord};
use wharf_engine::model::job::Class;

use super::parts::{number_cell, rule, shortened};
use super::screen::style;
use crate::render::numbers::{UNKNOWN, age, at_the_point, fitted, number, percent_or_unknown};
use crate::render::output::Tone;

/// Rule and titles of columns above a list.
pub(super) const HEAD_ROWS: u16 = 2;
const CLASS_WIDTH: u16 = 11;
const GPUS_WIDTH: u16 = 7;
const AGE_WIDTH: u16 = 6;
const BUSY_WIDTH: u16 = 4;
/// A sentence that has less room says nothing.
const SENTENCE_WIDTH_MIN: usize = 12;
/// Between two columns.
const GAP: u16 = 1;

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Jobs that hold places.
    Running,
    /// Jobs that wait.
    Queue,
}

impl List {
    /// The other one.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Running => Self::Queue,
            Self::Queue => Self::Running,
        }
    }

    /// How many rows it has in this answer.
    pub(super) fn len(self, summary: &Summary) -> usize {
        match self {
            Self::Running => summary.active.len(),
            Self::Queue => summary.queue.len(),
        }
    }
}

/// How many rows of a list fit.
pub(super) fn rows_in(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(HEAD_ROWS))
}

/// Jobs that hold places, the largest first.
pub(super) fn running(summary: &Summary, scroll: usize, area: Rect, buffer: &mut Buffer) {
    let counted = |state: &JobState| count(summary, *state);
    let all: u32 = [JobState::Starting, JobState::Running, JobState::Leaving].iter().map(counted).sum();
    let beside = vec![format!("{all} running"), range(List::Running, summary, scroll, area)];
    let list = head("RUNNING", beside, area, buffer);
    if summary.active.is_empty() {
        return Line::from(" nothing runs").style(style(Tone::Faint)).render(list, buffer);
    }
    let shown: Vec<&ActiveRow> = summary.active.iter().skip(scroll).take(rows_in(area)).collect();
    let wheres: Vec<String> = shown.iter().map(|row| where_is(row)).collect();
    let where_width = wheres.iter().map(|text| text.chars().count()).max().unwrap_or_default().max(5);
    let where_width = u16::try_from(where_width).unwrap_or(u16::MAX).min(area.width / 6);
    let first = FirstColumns::of(summary, area);
    let rest = first.rest.saturating_sub(BUSY_WIDTH + GAP + where_width + GAP);
    let gpus = at_the_point(&shown.iter().map(|row| number(row.gpus)).collect::<Vec<_>>());
    let rows = shown.iter().zip(&gpus).zip(&wheres).map(|((row, gpus), place)| {
        let ran = row.since_ms.map_or_else(String::new, |since| age(since, Some(summary.now_ms)));
        let cells = first.cells(&row.tenant, &row.name, row.class, [gpus, &ran]);
        let tone = match row.state {
            JobState::Running => Tone::Faint,
            JobState::Starting => Tone::Good,
            JobState::Waiting | JobState::Leaving => Tone::Warn,
        };
        Row::new(cells.into_iter().chain([
            number_cell(&percent_or_unknown(row.sm_active), Style::new()),
            Cell::from(fitted(place, where_width.into())),
            Cell::from(fitted(&row.text, rest.into())).style(style(tone)),
        ]))
    });
    let titles = FirstColumns::titles("for").into_iter().chain([
        number_cell("sm", Style::new()),
        Cell::from("where"),
        Cell::from("how"),
    ]);
    let widths = [Constraint::Length(BUSY_WIDTH), Constraint::Length(where_width), Constraint::Length(rest)];
    let widths = first.widths().into_iter().chain(widths);
    Table::new(rows, widths).header(Row::new(titles).style(style(Tone::Faint))).render(list, buffer);
}

/// `n1`, or `n1 +3` for a job on four nodes.
fn where_is(row: &ActiveRow) -> String {
    let first = row.nodes.first().map_or(UNKNOWN, String::as_str);
    match row.node_count {
        0 | 1 => first.to_owned(),
        nodes => format!("{first} +{}", nodes - 1),
    }
}

/// Jobs that wait, in the order in which they came.
pub(super) fn queue(summary: &Summary, scroll: usize, area: Rect, buffer: &mut Buffer) {
    let waiting = format!("{} waiting", count(summary, JobState::Waiting));
    let list = head("QUEUE", vec![waiting, range(List::Queue, summary, scroll, area)], area, buffer);
    if summary.queue.is_empty() {
        return Line::from(" nothing waits").style(style(Tone::Good)).render(list, buffer);
    }
    let shown: Vec<&QueueRow> = summary.queue.iter().skip(scroll).take(rows_in(area)).collect();
    let first = FirstColumns::of(summary, area);
    let gpus = at_the_point(&shown.iter().map(|row| number(row.gpus)).collect::<Vec<_>>());
    let rows = shown.iter().zip(&gpus).map(|(row, gpus)| {
        let waited = age(row.since_ms, Some(summary.now_ms));
        let cells = first.cells(&row.tenant, &row.name, row.class, [gpus, &waited]);
        Row::new(cells.into_iter().chain([Cell::from(why(row, first.rest.into()))]))
    });
    let titles = FirstColumns::titles("age").into_iter().chain([Cell::from("why")]);
    let widths = first.widths().into_iter().chain([Constraint::Length(first.rest)]);
    Table::new(rows, widths).header(Row::new(titles).style(style(Tone::Faint))).render(list, buffer);
}

fn why(row: &QueueRow, width: usize) -> Line<'static> {
    let tone = match row.verdict {
        VerdictWord::Never | VerdictWord::Denied => Tone::Bad,
        VerdictWord::Waits | VerdictWord::Leaving => Tone::Warn,
        VerdictWord::RunnableNow | VerdictWord::Running | VerdictWord::Starting => Tone::Good,
    };
    let reason = row.reason.as_deref().unwrap_or(UNKNOWN);
    let mut spans = vec![Span::styled(fitted(reason, width), style(tone))];
    let left = width.saturating_sub(reason.chars().count() + 2);
    if left >= SENTENCE_WIDTH_MIN {
        spans.push(Span::styled(format!("  {}", fitted(&row.text, left)), style(Tone::Faint)));
    }
    Line::from(spans)
}

fn count(summary: &Summary, state: JobState) -> u32 {
    summary.jobs.iter().filter(|count| count.state == state).map(|count| count.count).sum()
}

/// `1-6 of 33`, where not all rows are on the screen.
fn range(list: List, summary: &Summary, scroll: usize, area: Rect) -> String {
    let (rows, all) = (rows_in(area), list.len(summary));
    if all <= rows {
        return String::new();
    }
    format!("{}-{} of {all}", scroll + 1, (scroll + rows).min(all))
}

/// Draws what is above a list; what is left is the list's.
fn head(name: &'static str, beside: Vec<String>, area: Rect, buffer: &mut Buffer) -> Rect {
    let [title, list] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let beside = beside.into_iter().filter(|text| !text.is_empty());
    rule(name, beside.map(|text| Span::styled(text, style(Tone::Faint))).collect(), title, buffer);
    list
}

/// The columns that both lists begin with.
struct FirstColumns {
    name_width: u16,
    /// What is left beside them.
    rest: u16,
}

impl FirstColumns {
    fn of(summary: &Summary, area: Rect) -> Self {
        let length = |tenant: &str, name: &str| tenant.chars().count() + name.chars().count() + 2;
        let waiting = summary.queue.iter().map(|row| length(&row.tenant, &row.name));
        let running = summary.active.iter().map(|row| length(&row.tenant, &row.name));
        let longest = waiting.chain(running).max().unwrap_or_default();
        let name_width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(8, area.width / 3);
        let taken = name_width + CLASS_WIDTH + GPUS_WIDTH + AGE_WIDTH + 4 * GAP;
        Self { name_width, rest: area.width.saturating_sub(taken) }
    }

    fn widths(&self) -> [Constraint; 4] {
        [self.name_width, CLASS_WIDTH, GPUS_WIDTH, AGE_WIDTH].map(Constraint::Length)
    }

    fn titles(age: &str) -> [Cell<'static>; 4] {
        let number = |title: &str| number_cell(title, Style::new());
        [Cell::from(" job"), Cell::from("class"), number("gpus"), number(age)]
    }

    fn cells(&self, tenant: &str, name: &str, class: Class, numbers: [&str; 2]) -> [Cell<'static>; 4] {
        let [gpus, age] = numbers.map(|text| number_cell(text, Style::new()));
        let name = shortened(&format!(" {tenant}/{name}"), self.name_width.into());
        [Cell::from(name), Cell::from(class.into_str()), gpus, age]
    }
}
