//! The parts of the screen, each drawn into the place it is given.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, Table, Widget};
use strum::VariantArray;
use wharf_api::v1::{JobState, LineView, ModeCounts, PoolView, Summary, TenantView};
use wharf_engine::model::job::Class;

use super::screen::style;
use crate::render::numbers::{UNKNOWN, UNLIMITED, at_the_point, float, percent, percent_or_unknown, tenths};
use crate::render::output::Tone;

/// Resources that are no GPUs, as the wire names them: the screen is about GPUs.
const BESIDE_GPUS: [&str; 2] = ["cpu", "memory"];

/// From this width on there is room for how GPUs are shared.
const SHARING_WIDTH_MIN: u16 = 110;

/// The pools that have GPUs.
pub(super) fn pools(summary: &Summary) -> impl Iterator<Item = &PoolView> {
    summary.pools.iter().filter(|pool| pool.gpus > 0)
}

/// Tenants with each of their lines about GPUs.
pub(super) fn lines(summary: &Summary) -> impl Iterator<Item = (&TenantView, &LineView)> {
    let lines = summary.tenants.iter().flat_map(|tenant| tenant.lines.iter().map(move |line| (tenant, line)));
    lines.filter(|(_, line)| !BESIDE_GPUS.contains(&line.resource.as_str()))
}

/// Jobs by class and state; beside them the control plane.
pub(super) fn head(summary: &Summary, area: Rect, buffer: &mut Buffer) {
    let [left, _, right] =
        Layout::horizontal([Constraint::Length(48), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let titles = JobState::VARIANTS.iter().map(|state| number_cell(state.into_str(), style(Tone::Faint)));
    let titles = Row::new([Cell::from(" jobs").style(style(Tone::Faint))].into_iter().chain(titles));
    let classes = Class::ALL.map(|class| {
        let cells = JobState::VARIANTS.iter().map(|&state| count_cell(summary, class, state));
        Row::new([Cell::from(format!(" {}", class.into_str()))].into_iter().chain(cells))
    });
    let widths = [Constraint::Fill(1)].into_iter().chain([Constraint::Length(8); 4]);
    Table::new([titles].into_iter().chain(classes), widths).render(left, buffer);
    control_plane(summary).render(right, buffer);
}

fn count_cell(summary: &Summary, class: Class, state: JobState) -> Cell<'static> {
    let same = summary.jobs.iter().filter(|count| count.class == class && count.state == state);
    let count: u32 = same.map(|count| count.count).sum();
    let tone = match (state, count) {
        (_, 0) => Tone::Faint,
        (JobState::Waiting | JobState::Leaving, _) => Tone::Warn,
        (JobState::Starting | JobState::Running, _) => Tone::Good,
    };
    number_cell(&count.to_string(), style(tone))
}

fn control_plane(summary: &Summary) -> Text<'static> {
    let all = |part: fn(&PoolView) -> f64| tenths(pools(summary).map(part).sum::<f64>());
    let times = summary.decision_ms.map_or_else(
        || format!("{UNKNOWN}, none yet"),
        |times| format!("p50 {} p99 {} ms", tenths(times.p50), tenths(times.p99)),
    );
    let gpus = all(|pool| f64::from(pool.gpus));
    let allocated = all(|pool| pool.allocated);
    let facts = [
        ("journal", format!("{}, term {}", summary.journal.index, summary.journal.term)),
        ("decides", times),
        ("GPUs", format!("{gpus}, {allocated} allocated")),
        ("", really_used(summary)),
    ];
    let line = |(label, value): (&'static str, String)| {
        Line::from(vec![Span::styled(format!("{label:<8}"), style(Tone::Faint)), Span::raw(value)])
    };
    Text::from(facts.map(line).to_vec())
}

/// The sum of what is known, and of how many GPUs nothing is.
fn really_used(summary: &Summary) -> String {
    let known: Vec<f64> = pools(summary).filter_map(|pool| pool.used_sm).collect();
    let unknown: u32 = pools(summary).filter(|pool| pool.used_sm.is_none()).map(|pool| pool.gpus).sum();
    let sum = tenths(known.iter().sum());
    match (known.is_empty(), unknown) {
        (false, 0) => format!("{sum} really used"),
        (false, unknown) => format!("{sum} used + {UNKNOWN} of {unknown}"),
        (true, _) => format!("{UNKNOWN} really used"),
    }
}

/// A bar per pool: what really computes, what is handed out, what is free, what is broken.
pub(super) fn fleet(summary: &Summary, area: Rect, buffer: &mut Buffer) {
    let legend = [
        ("█ really used", Tone::Good),
        ("▒ allocated", Tone::Accent),
        ("· free", Tone::Faint),
        ("× broken", Tone::Bad),
    ];
    let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    rule("FLEET", legend.map(|(text, tone)| Span::styled(text, style(tone))).to_vec(), title, buffer);
    let with_sharing = area.width >= SHARING_WIDTH_MIN;
    let told = pools_told(summary);
    let longest =
        |column: usize| told.iter().map(|told| told[column].chars().count()).max().unwrap_or_default();
    let shown = if with_sharing { 0..5 } else { 0..4 };
    let widths: Vec<u16> = shown.map(|column| u16::try_from(longest(column)).unwrap_or(u16::MAX)).collect();
    let taken = widths.iter().fold(0, |sum: u16, width| sum.saturating_add(*width).saturating_add(1));
    let bar_width = area.width.saturating_sub(taken.saturating_add(1));
    let rows = pools(summary).zip(&told).map(|(pool, told)| pool_row(pool, told, bar_width));
    let mut columns: Vec<Constraint> = widths.into_iter().map(Constraint::Length).collect();
    columns.insert(1, Constraint::Length(bar_width));
    Table::new(rows, columns).render(bars, buffer);
}

/// Of each pool: model, what is handed out, what is used, what is broken, and how it is shared. Numbers of one kind are
/// below each other.
fn pools_told(summary: &Summary) -> Vec<[String; 5]> {
    let numbers = |part: &dyn Fn(&PoolView) -> String| right(&pools(summary).map(part).collect::<Vec<_>>());
    let allocated = numbers(&|pool| tenths(pool.allocated));
    let all = numbers(&|pool| pool.gpus.to_string());
    let used = numbers(&|pool| pool.used_sm.map_or_else(|| UNKNOWN.to_owned(), tenths));
    let parts = pools(summary).zip(allocated).zip(all).zip(used);
    let told = parts.map(|(((pool, allocated), all), used)| {
        let of_pool = |part: f64| percent(part / f64::from(pool.gpus));
        let busy = pool.used_sm.map_or_else(String::new, of_pool);
        let broken = pool.gpus.saturating_sub(pool.healthy);
        [
            format!(" {}", pool.model),
            format!("{allocated}/{all} alloc {:>4}", of_pool(pool.allocated)),
            format!("used {used} {busy:>4}"),
            if broken > 0 { format!("{broken} broken") } else { String::new() },
            sharing(pool),
        ]
    });
    told.collect()
}

/// Numbers of one column, aligned at the point and at the right.
fn right(cells: &[String]) -> Vec<String> {
    let cells = at_the_point(cells);
    let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default();
    cells.iter().map(|cell| format!("{cell:>width$}")).collect()
}

/// `mem 41% mig 12 (31 slices) mps 4 tax 3%`; what nobody does is left out.
fn sharing(pool: &PoolView) -> String {
    let memory = pool.memory_used_mib.zip(pool.memory_mib.filter(|&all| all > 0));
    let memory = memory.map(|(used, all)| float(used) / float(all));
    let ModeCounts { whole: _, mig, mps, time_slicing } = pool.modes;
    let counted = |count: u32, what: &str| (count > 0).then(|| format!("{what} {count}"));
    let slices = (pool.slices > 0).then(|| format!("({} slices)", pool.slices));
    let tax = pool.tax.map(|tax| format!("tax {}", percent(tax)));
    let parts = [
        Some(format!("mem {}", percent_or_unknown(memory))),
        counted(mig, "mig"),
        slices,
        counted(mps, "mps"),
        counted(time_slicing, "turns"),
        tax,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn pool_row(pool: &PoolView, told: &[String; 5], bar_width: u16) -> Row<'static> {
    let gpus = f64::from(pool.gpus);
    let broken = f64::from(pool.gpus.saturating_sub(pool.healthy)) / gpus;
    let parts = Parts { used: pool.used_sm.unwrap_or(0.0) / gpus, allocated: pool.allocated / gpus, broken };
    let [model, allocated, used, broken, sharing] = told;
    let used_tone = if pool.used_sm.is_some() { Tone::Good } else { Tone::Warn };
    Row::new([
        Cell::from(model.clone()).style(style(Tone::Strong)),
        Cell::from(parts.bar(bar_width)),
        number_cell(allocated, style(Tone::Accent)),
        number_cell(used, style(used_tone)),
        Cell::from(broken.clone()).style(style(Tone::Bad)),
        Cell::from(sharing.clone()).style(style(Tone::Faint)),
    ])
}

/// Parts of a pool, each of 1.
struct Parts {
    used: f64,
    allocated: f64,
    broken: f64,
}

impl Parts {
    fn bar(&self, width: u16) -> Line<'static> {
        let cells = f64::from(width.max(1));
        // What is there at all is seen: a single broken GPU of a thousand still takes a cell.
        let seen = |part: f64| if part > 0.0 { part.max(0.75 / cells) } else { 0.0 };
        let (used, allocated, broken) = (seen(self.used), seen(self.allocated), seen(self.broken));
        let cell = |index: u16| match (f64::from(index) + 0.5) / cells {
            at if at > 1.0 - broken => ("×", Tone::Bad),
            at if at < used => ("█", Tone::Good),
            at if at < allocated => ("▒", Tone::Accent),
            _ => ("·", Tone::Faint),
        };
        let cells = (0..width).map(cell).map(|(symbol, tone)| Span::styled(symbol, style(tone)));
        Line::from(cells.collect::<Vec<_>>())
    }
}

/// What each tenant is promised, may use and uses.
pub(super) fn tenants(summary: &Summary, area: Rect, buffer: &mut Buffer) {
    if area.height < 3 {
        return;
    }
    let [title, list] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let room = usize::from(list.height.saturating_sub(1));
    let all = lines(summary).count();
    let hidden = all.saturating_sub(room);
    let more = (hidden > 0).then(|| format!("{hidden} more: wharf get tenants"));
    let more = more.map(|more| Span::styled(more, style(Tone::Faint)));
    rule("TENANTS", more.into_iter().collect(), title, buffer);
    let widths = [0, 8, 10, 8, 8, 9, 7, 7];
    let name_width = usize::from(area.width.saturating_sub(widths.iter().sum::<u16>() + 7));
    let titles = ["guaranteed", "used", "fair", "limit", "running", "waiting"];
    let titles = titles.map(|title| number_cell(title, Style::new()));
    let head = [Cell::from(" tenant"), Cell::from("resource")].into_iter().chain(titles);
    let shown: Vec<(&TenantView, &LineView)> = lines(summary).take(room).collect();
    let amounts = amounts(&shown);
    let rows = shown.iter().zip(&amounts).map(|(line, amounts)| tenant_row(line, amounts, name_width));
    let widths = widths.map(|width| if width == 0 { Constraint::Fill(1) } else { Constraint::Length(width) });
    Table::new(rows, widths).header(Row::new(head).style(style(Tone::Faint))).render(list, buffer);
}

/// What each line is guaranteed, uses, would have as its fair share and may use, with the points below each other.
fn amounts(lines: &[(&TenantView, &LineView)]) -> Vec<[String; 4]> {
    let bound = |amount: Option<f64>| amount.map_or_else(|| UNLIMITED.to_owned(), tenths);
    let column = |part: &dyn Fn(&LineView) -> String| {
        at_the_point(&lines.iter().map(|(_, line)| part(line)).collect::<Vec<_>>())
    };
    let guaranteed = column(&|line| bound(line.guaranteed));
    let used = column(&|line| tenths(line.used));
    let fair = column(&|line| tenths(line.fair_share));
    let limit = column(&|line| bound(line.limit));
    let amounts = guaranteed.into_iter().zip(used).zip(fair).zip(limit);
    amounts.map(|(((guaranteed, used), fair), limit)| [guaranteed, used, fair, limit]).collect()
}

fn tenant_row(
    (tenant, line): &(&TenantView, &LineView),
    [guaranteed, used, fair, limit]: &[String; 4],
    name_width: usize,
) -> Row<'static> {
    let owed = line.guaranteed.is_some_and(|guaranteed| line.used < guaranteed) && tenant.waiting > 0;
    let borrows = line.guaranteed.is_some_and(|guaranteed| line.used > guaranteed);
    let tone = match (owed, borrows) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Accent,
        (false, false) => Tone::Plain,
    };
    let waiting = style(if tenant.waiting > 0 { Tone::Warn } else { Tone::Faint });
    Row::new([
        Cell::from(shortened(&format!(" {}", tenant.path), name_width)),
        Cell::from(line.resource.clone()),
        number_cell(guaranteed, Style::new()),
        number_cell(used, style(tone)),
        number_cell(fair, Style::new()),
        number_cell(limit, Style::new()),
        number_cell(&tenant.running.to_string(), Style::new()),
        number_cell(&tenant.waiting.to_string(), waiting),
    ])
}

/// A line across the screen that says what is below it.
pub(super) fn rule(name: &'static str, beside: Vec<Span<'static>>, area: Rect, buffer: &mut Buffer) {
    Line::from("─".repeat(usize::from(area.width))).style(style(Tone::Faint)).render(area, buffer);
    // The name is not as faint as the line it stands on.
    let name = Span::styled(name, style(Tone::Strong).fg(Color::Reset));
    let name = [Span::raw(" "), name, Span::raw(" ")];
    let beside = beside.into_iter().flat_map(|span| [Span::raw(" "), span]);
    let mut line: Vec<Span<'_>> = name.into_iter().chain(beside).collect();
    if line.len() > 3 {
        line.push(Span::raw(" "));
    }
    Line::from(line).render(Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area }, buffer);
}

pub(super) fn number_cell(text: &str, look: Style) -> Cell<'static> {
    Cell::from(Line::from(text.to_owned()).alignment(Alignment::Right)).style(look)
}

/// A path without its beginning, where it is too long: the end tells more.
pub(super) fn shortened(path: &str, width: usize) -> String {
    let long_by = path.chars().count().saturating_sub(width);
    if long_by == 0 {
        return path.to_owned();
    }
    " …".chars().chain(path.chars().skip(long_by + 2)).collect()
}
