//! GPU time of many jobs, added up by tenant, class, label, day or whatever else is asked for.
//!
//! A row is cut at the borders of a window, and at midnight where days are told apart. What was held has its times, so
//! it is cut exactly. What was used and lost is known of the row as a whole; it is divided as what was held is, each part
//! as the difference of what lies before its end and before its begin. The parts therefore always add up to the row:
//! windows that lie side by side add up to the window that has both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::model::policy::trust::team_of;

use super::Usage;

const DAY_MS: u64 = 86_400_000;
/// More groups than anybody reads, in some tens of megabytes.
const GROUPS_MAX: usize = 50_000;

/// A span of world time, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ms: u64,
    pub to_ms: u64,
}

/// What rows are told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Tenant,
    /// Its first two levels.
    Team,
    /// Its first level.
    Org,
    Class,
    User,
    Job,
    /// Day in UTC.
    Day,
    Label(String),
}

/// What a row has for a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyValue {
    Text(String),
    /// It has none.
    Nothing,
    /// Days since 1970.
    Day(u64),
}

/// Whose GPU time a row tells of.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
}

/// GPU time that belongs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What was held, in milliseconds of 1/3000 of a GPU.
    pub held_part_ms: u128,
    /// The part of it of which nobody knows how much was used.
    pub unknown_part_ms: u128,
    /// What was used of the rest, in milliseconds of one GPU.
    pub used_gpu_ms: u64,
    /// Work that was thrown away, in milliseconds of one GPU.
    pub lost_gpu_ms: u64,
    jobs: BTreeSet<u128>,
}

impl Sums {
    /// How many jobs held something.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// How much was used, in milliseconds of one GPU; `None` where nobody knows of any of it.
    pub fn used_known(&self) -> Option<u64> {
        (self.unknown_part_ms < self.held_part_ms || self.held_part_ms == 0).then_some(self.used_gpu_ms)
    }

    fn add(&mut self, piece: &Piece) {
        let Piece { job, held_part_ms, used_gpu_ms, lost_gpu_ms } = *piece;
        self.held_part_ms += held_part_ms;
        match used_gpu_ms {
            Some(used) => self.used_gpu_ms += used,
            None => self.unknown_part_ms += held_part_ms,
        }
        self.lost_gpu_ms += lost_gpu_ms;
        self.jobs.insert(job);
    }
}

/// There are more groups than an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups {
    pub max: usize,
}

/// The GPU time of a window, in groups.
#[derive(Debug)]
pub struct Statement {
    window: Window,
    keys: Vec<Key>,
    groups: BTreeMap<Vec<KeyValue>, Sums>,
    total: Sums,
}

impl Statement {
    /// Without rows yet.
    pub fn new(window: Window, keys: Vec<Key>) -> Self {
        Self { window, keys, groups: BTreeMap::new(), total: Sums::default() }
    }

    /// Adds what of a row lies in the window.
    pub fn add(&mut self, whose: Whose<'_>, usage: &Usage) -> Result<(), TooManyGroups> {
        if !self.keys.contains(&Key::Day) {
            return self.add_within(whose, usage, self.window);
        }
        let begin = usage.segments.iter().map(|segment| segment.from_ms).min().unwrap_or_default();
        let end = usage.segments.iter().map(|segment| segment.to_ms).max().unwrap_or_default();
        let (mut from_ms, end) = (begin.max(self.window.from_ms), end.min(self.window.to_ms));
        while from_ms < end {
            let to_ms = (from_ms / DAY_MS + 1).saturating_mul(DAY_MS).min(end);
            self.add_within(whose, usage, Window { from_ms, to_ms })?;
            from_ms = to_ms;
        }
        Ok(())
    }

    /// The sum of everything, and the groups: those that held the most first.
    pub fn close(self) -> (Sums, Vec<(Vec<KeyValue>, Sums)>) {
        let mut groups: Vec<(Vec<KeyValue>, Sums)> = self.groups.into_iter().collect();
        // They come in the order of their keys, and equals stay in it.
        groups.sort_by_key(|(_, sums)| Reverse(sums.held_part_ms));
        (self.total, groups)
    }

    fn add_within(&mut self, whose: Whose<'_>, usage: &Usage, window: Window) -> Result<(), TooManyGroups> {
        let piece = Piece::of(usage, window);
        if piece.held_part_ms == 0 {
            return Ok(());
        }
        let key = self.keys.iter().map(|key| value(key, whose, usage, window)).collect();
        self.groups.entry(key).or_default().add(&piece);
        self.total.add(&piece);
        if self.groups.len() > GROUPS_MAX { Err(TooManyGroups { max: GROUPS_MAX }) } else { Ok(()) }
    }
}

/// What of a row lies in a window.
struct Piece {
    job: u128,
    held_part_ms: u128,
    used_gpu_ms: Option<u64>,
    lost_gpu_ms: u64,
}

impl Piece {
    fn of(usage: &Usage, window: Window) -> Self {
        let held_before = |at_ms: u64| -> u128 {
            usage.segments.iter().map(|segment| segment.part_ms_within(0, at_ms)).sum()
        };
        let (from, to) = (held_before(window.from_ms), held_before(window.to_ms));
        let all = held_before(u64::MAX).max(1);
        let share = |amount: u64| {
            let before = |held: u128| u128::from(amount) * held / all;
            u64::try_from(before(to) - before(from)).expect("a part is not more than the whole")
        };
        Self {
            job: u128::from_str_radix(&usage.uid, 16).unwrap_or_default(),
            held_part_ms: to - from,
            used_gpu_ms: usage.used_gpu_ms.map(share),
            lost_gpu_ms: share(usage.lost_gpu_ms),
        }
    }
}

fn value(key: &Key, whose: Whose<'_>, usage: &Usage, window: Window) -> KeyValue {
    let text = |text: &str| KeyValue::Text(text.to_owned());
    match key {
        Key::Tenant => text(whose.tenant),
        Key::Team => text(team_of(whose.tenant)),
        Key::Org => text(whose.tenant.split('/').next().unwrap_or_default()),
        Key::Class => text(&usage.class),
        Key::User if usage.submitted_by.is_empty() => KeyValue::Nothing,
        Key::User => text(&usage.submitted_by),
        Key::Job => KeyValue::Text(format!("{}/{}", whose.tenant, whose.name)),
        Key::Day => KeyValue::Day(window.from_ms / DAY_MS),
        Key::Label(wanted) => {
            let found = usage.labels.iter().find(|(key, _)| key == wanted);
            found.map_or(KeyValue::Nothing, |(_, value)| text(value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn usage(job: u128, segments: &[(u64, u64, u64)]) -> Usage {
        let segment = |&(from, to, gpus): &(u64, u64, u64)| Segment {
            from_ms: from,
            to_ms: to,
            gpu_parts: gpus * 3000,
        };
        Usage {
            uid: format!("{job:032x}"),
            class: "batch".to_owned(),
            labels: vec![("project".to_owned(), "red".to_owned())],
            submitted_by: String::new(),
            attempt: 1,
            segments: segments.iter().map(segment).collect(),
            ran_gpu_ms: 0,
            used_gpu_ms: Some(0),
            lost_gpu_ms: 0,
        }
    }

    fn statement(from_ms: u64, to_ms: u64, keys: &[Key]) -> Statement {
        Statement::new(Window { from_ms, to_ms }, keys.to_vec())
    }

    const A: Whose<'_> = Whose { tenant: "lab/nlp/llm", name: "a" };

    #[test]
    fn a_row_is_cut_at_the_borders_of_the_window() {
        let mut told = statement(10, 30, &[]);
        let row = Usage {
            used_gpu_ms: Some(51),
            lost_gpu_ms: 7,
            ..usage(1, &[(0, 20, 2), (15, 40, 1), (50, 60, 8)])
        };
        told.add(A, &row).unwrap();
        let (total, groups) = told.close();
        assert_eq!(total.held_part_ms, (2 * 10 + 15) * 3000);
        // 20 of 145 GPU-milliseconds lie before, 55 before the end.
        assert_eq!((total.used_gpu_ms, total.lost_gpu_ms), (51 * 55 / 145 - 51 * 20 / 145, 7 * 55 / 145));
        assert_eq!(groups, [(Vec::new(), total)]);
    }

    #[test]
    fn a_row_outside_of_the_window_counts_for_nothing() {
        let mut told = statement(10, 30, &[]);
        told.add(A, &usage(1, &[(0, 10, 1), (30, 40, 1)])).unwrap();
        let (total, groups) = told.close();
        assert_eq!((total.jobs(), groups.len()), (0, 0));
    }

    #[test]
    fn parts_of_a_row_add_up_to_it() {
        let row =
            Usage { used_gpu_ms: Some(997), lost_gpu_ms: 101, ..usage(1, &[(3, 500, 3), (77, 901, 1)]) };
        for step in 1..40 {
            let (mut held, mut used, mut lost) = (0, 0, 0);
            for from in (0..1000).step_by(step) {
                let to = from + u64::try_from(step).unwrap();
                let piece = Piece::of(&row, Window { from_ms: from, to_ms: to });
                held += piece.held_part_ms;
                used += piece.used_gpu_ms.unwrap();
                lost += piece.lost_gpu_ms;
            }
            assert_eq!((held, used, lost), ((497 * 3 + 824) * 3000, 997, 101), "{step}");
        }
    }

    #[test]
    fn days_end_at_midnight() {
        let mut told = statement(0, u64::MAX, &[Key::Day]);
        told.add(A, &usage(1, &[(22 * HOUR, 49 * HOUR, 1)])).unwrap();
        let (total, groups) = told.close();
        let days: Vec<(KeyValue, u128)> = groups
            .into_iter()
            .map(|(key, sums)| (key[0].clone(), sums.held_part_ms / 3000 / u128::from(HOUR)))
            .collect();
        assert_eq!(days, [(KeyValue::Day(1), 24), (KeyValue::Day(0), 2), (KeyValue::Day(2), 1)]);
        assert_eq!(total.jobs(), 1);
    }

    #[test]
    fn groups_are_by_every_key_and_the_largest_is_first() {
        let text = |text: &str| KeyValue::Text(text.to_owned());
        let keys = [Key::Org, Key::Team, Key::User, Key::Label("project".to_owned()), Key::Job];
        let mut told = statement(0, 100, &keys);
        let b = Whose { tenant: "lab", name: "b" };
        told.add(b, &Usage { labels: Vec::new(), submitted_by: "ada".to_owned(), ..usage(1, &[(0, 10, 1)]) })
            .unwrap();
        told.add(A, &usage(2, &[(0, 10, 2)])).unwrap();
        told.add(A, &usage(3, &[(0, 10, 2)])).unwrap();
        let (total, groups) = told.close();
        assert_eq!(total.jobs(), 3);
        assert_eq!(
            groups[0].0,
            [text("lab"), text("lab/nlp"), KeyValue::Nothing, text("red"), text("lab/nlp/llm/a")]
        );
        assert_eq!((groups[0].1.jobs(), groups[0].1.held_part_ms), (2, 40 * 3000));
        assert_eq!(groups[1].0, [text("lab"), text("lab"), text("ada"), KeyValue::Nothing, text("lab/b")]);
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut told = statement(0, 100, &[]);
        told.add(A, &Usage { used_gpu_ms: None, ..usage(1, &[(0, 10, 1)]) }).unwrap();
        assert_eq!(told.total.used_known(), None);
        told.add(A, &Usage { used_gpu_ms: Some(4), ..usage(2, &[(0, 10, 1)]) }).unwrap();
        assert_eq!((told.total.used_known(), told.total.unknown_part_ms), (Some(4), 30_000));
    }

    #[test]
    fn more_groups_than_an_answer_holds_are_refused() {
        let mut told = statement(0, 100, &[Key::Job]);
        let add = |told: &mut Statement, number: usize| {
            let name = number.to_string();
            told.add(Whose { tenant: "lab", name: &name }, &usage(1, &[(0, 1, 1)]))
        };
        for number in 0..GROUPS_MAX {
            add(&mut told, number).unwrap();
        }
        assert_eq!(add(&mut told, GROUPS_MAX), Err(TooManyGroups { max: GROUPS_MAX }));
    }
}
