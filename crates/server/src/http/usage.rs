//! GPU time of a window, added up. Rows are read from history a bounded piece at a time; what is held now
//! comes from the state as of the moment at which the first piece is read, so nothing is counted twice or left out.

use axum::Json;
use axum::extract::State;
use wharf_api::file::moment::{day_text, moment_text, past_moment};
use wharf_api::file::nearest;
use wharf_api::v1::{Code, Problem, UsageReport, UsageRow, UsageSums, gpu_hours, schema_of, thousandths};
use wharf_controller::disk::{HistoryKind, HistoryQuery};
use wharf_controller::history::{
    Key, KeyValue, Statement, Sums, TooManyGroups, Usage, Whose, Window, held_now,
};
use wharf_engine::model::policy::trust::is_within;
use wharf_engine::units::Timestamp;

use super::ended::{PIECE, read};
use super::params::Params;
use super::{Refused, Shared, listing};
use crate::rejection::closed;
use crate::replica::Replica;

/// The most pieces that one request reads: a million rows, in some seconds. A sum of less than all would be wrong, so
/// a longer window is refused.
const PIECES_MAX: usize = 4096;
/// A row may tell of tasks that ended a little later than its turn began, which is the time that it has.
const ROW_EARLY_MS: u64 = 3_600_000;
/// How far back is looked unless it is said.
const SINCE_DEFAULT: &str = "7d";
/// The most keys: each is a column.
const KEYS_MAX: usize = 8;

/// A key and the word for it.
type Named = (String, Key);

pub(super) async fn report(
    State(shared): State<Shared>,
    params: Params,
) -> Result<Json<UsageReport>, Refused> {
    let keys = keys(params.text("by").unwrap_or("tenant"))?;
    let tenant = params.text("tenant").map(str::to_owned);
    let filter = tenant.clone();
    let asked = shared.desk.read(move |replica| Basis::of(replica, filter.as_deref()));
    let basis = asked.await.map_err(closed)??;
    let window = window(params.text("since").unwrap_or(SINCE_DEFAULT), params.text("until"), basis.now)?;
    let mut statement = Statement::new(window, keys.iter().map(|(_, key)| key.clone()).collect());
    for Held { tenant, name, usage } in &basis.held {
        statement.add(Whose { tenant, name }, usage).map_err(too_many)?;
    }
    let of_tenant = |path: &str| tenant.as_ref().is_none_or(|tenant| is_within(path, tenant));
    add_rows(&shared, &mut statement, basis.index, window, of_tenant).await?;
    let (total, groups) = statement.close();
    let rows = groups.iter().map(|(values, sums)| row(&keys, values, sums));
    let kept = basis.kept_since_ms;
    Ok(Json(UsageReport {
        schema: schema_of::<UsageReport>(),
        since_ms: window.from_ms,
        until_ms: window.to_ms,
        rows: rows.collect(),
        total: view(&total),
        by: keys.into_iter().map(|(word, _)| word).collect(),
        kept_since_ms: (window.from_ms < kept).then_some(kept),
    }))
}

/// What is held by one job.
struct Held {
    tenant: String,
    name: String,
    usage: Usage,
}

/// What is true when the first piece is read.
struct Basis {
    now: Timestamp,
    /// Rows from here on tell of what `held` has already.
    index: u64,
    /// Rows that are older than this may be gone.
    kept_since_ms: u64,
    held: Vec<Held>,
}

impl Basis {
    fn of(replica: &Replica, tenant: Option<&str>) -> Result<Self, Problem> {
        let (state, now) = (&*replica.state, replica.now());
        if let Some(tenant) = tenant {
            listing::is_known(state, tenant)?;
        }
        let samples = replica.samples();
        let held = state.ledger.holdings().filter_map(|(id, _)| {
            let spec = &state.jobs.get(id)?.spec;
            let path = state.tenants.path(spec.tenant);
            if tenant.is_some_and(|tenant| !is_within(path, tenant)) {
                return None;
            }
            let usage = held_now(state, id, &samples, now)?;
            Some(Held { tenant: path.to_owned(), name: spec.name.clone(), usage })
        });
        let keep = state.tenants.policy().history_keep;
        Ok(Self {
            now,
            index: state.index(),
            kept_since_ms: now.0.saturating_sub(keep.0),
            held: held.collect(),
        })
    }
}

/// Adds the rows before an index that reach into the window, newest first.
async fn add_rows(
    shared: &Shared,
    statement: &mut Statement,
    index: u64,
    window: Window,
    of_tenant: impl Fn(&str) -> bool,
) -> Result<(), Refused> {
    // Tenants are told apart here: a rare one would make a reader look through all of history for a single piece.
    let kind = Some(HistoryKind::Usage);
    let mut query = HistoryQuery { kind, before: Some(index), limit: PIECE, ..HistoryQuery::default() };
    for _ in 0..PIECES_MAX {
        let rows = read(shared, query.clone()).await?;
        for row in &rows {
            if row.at.saturating_add(ROW_EARLY_MS) < window.from_ms {
                return Ok(());
            }
            if of_tenant(&row.tenant) {
                let usage = serde_json::from_str(&row.body).map_err(|fault| unreadable(row.index, &fault))?;
                statement.add(Whose { tenant: &row.tenant, name: &row.name }, &usage).map_err(too_many)?;
            }
        }
        match rows.last() {
            Some(last) if rows.len() == PIECE => query.before = Some(last.index),
            Some(_) | None => return Ok(()),
        }
    }
    let most = PIECE * PIECES_MAX;
    let what = format!("history has more than {most} rows of GPU time since the window begins");
    Err(Problem::new(Code::TooLarge, what).hint("ask for a window that begins later").into())
}

fn unreadable(index: u64, fault: &serde_json::Error) -> Problem {
    Problem::new(Code::Internal, format!("history row {index} cannot be read: {fault}"))
        .hint("a sum without it would be wrong; keep the data directory and report it")
}

fn too_many(TooManyGroups { max }: TooManyGroups) -> Problem {
    Problem::new(Code::TooLarge, format!("there are more than {max} groups"))
        .hint("ask by fewer or coarser keys, or for a shorter window")
}

/// The window that is asked for, as far as it is over.
fn window(since: &str, until: Option<&str>, now: Timestamp) -> Result<Window, Problem> {
    let from = moment("since", since, now)?;
    let to = until.map(|until| moment("until", until, now)).transpose()?.unwrap_or(now);
    // A window that has no time in it would look as if nobody had used anything.
    if from >= to.min(now) {
        let (until, to) = until.filter(|_| from >= to).map_or(("now", now), |until| (until, to));
        let (from, to) = (moment_text(from), moment_text(to));
        let what = format!("since {since} ({from}) is not before until {until} ({to})");
        return Err(Problem::new(Code::BadRequest, what)
            .hint("let the window begin before it ends and before now, such as since 7d until 1d"));
    }
    Ok(Window { from_ms: from.0, to_ms: to.min(now).0 })
}

fn moment(name: &str, written: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    let what = || format!("{name}: {written:?} is neither a span of time nor a moment");
    let hint = "write how long ago, such as 7d or 12h, or a time with its zone, such as 2026-11-01T00:00Z";
    past_moment(written, now).ok_or_else(|| Problem::new(Code::BadRequest, what()).hint(hint))
}

/// The keys that are asked for, each once.
fn keys(by: &str) -> Result<Vec<Named>, Problem> {
    let mut keys: Vec<Named> = Vec::new();
    for word in by.split(',').map(str::trim) {
        let named = (word.to_owned(), key(word)?);
        if keys.contains(&named) {
            return Err(
                Problem::new(Code::BadRequest, format!("by: {word} is given twice")).hint("give it once")
            );
        }
        keys.push(named);
    }
    if keys.len() > KEYS_MAX {
        let what = format!("by: there are {} keys", keys.len());
        return Err(Problem::new(Code::BadRequest, what).hint(format!("give at most {KEYS_MAX}")));
    }
    Ok(keys)
}

fn key(word: &str) -> Result<Key, Problem> {
    const WORDS: [&str; 7] = ["tenant", "team", "org", "class", "user", "job", "day"];
    let all = || format!("{} or label:KEY", WORDS.join(", "));
    if let Some(label) = word.strip_prefix("label:") {
        return if label.is_empty() {
            Err(Problem::new(Code::BadRequest, "by: label: has no key after it")
                .hint("write the key of a label, such as label:project"))
        } else {
            Ok(Key::Label(label.to_owned()))
        };
    }
    Ok(match word {
        "tenant" => Key::Tenant,
        "team" => Key::Team,
        "org" => Key::Org,
        "class" => Key::Class,
        "user" => Key::User,
        "job" => Key::Job,
        "day" => Key::Day,
        _ => {
            let near = nearest(word, &WORDS).or((word == "label").then_some("label:KEY"));
            let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            let problem = Problem::new(Code::BadRequest, format!("by: there is no key {word:?}"));
            return Err(problem.hint(format!("{near}Allowed here: {}", all())));
        }
    })
}

fn row(keys: &[Named], values: &[KeyValue], sums: &Sums) -> UsageRow {
    let text = |value: &KeyValue| match value {
        KeyValue::Text(text) => Some(text.clone()),
        KeyValue::Nothing => None,
        KeyValue::Day(days) => Some(day_text(*days)),
    };
    let key = keys.iter().zip(values).map(|((word, _), value)| (word.clone(), text(value)));
    UsageRow { key: key.collect(), sums: view(sums) }
}

fn view(sums: &Sums) -> UsageSums {
    let used = sums.used_known();
    // 3000 parts of a GPU for 3.6 ms are a millionth of a GPU-hour.
    let of_parts = |part_ms: u128| gpu_hours(rounded(part_ms, 10_800));
    let of_gpu_ms = |gpu_ms: u64| gpu_hours(rounded(u128::from(gpu_ms) * 10, 36));
    let share = |used: u64| thousandths(rounded(u128::from(used) * 3_000_000, sums.held_part_ms));
    UsageSums {
        jobs: u64::try_from(sums.jobs()).unwrap_or(u64::MAX),
        allocated_gpu_h: of_parts(sums.held_part_ms),
        used_gpu_h: used.map(of_gpu_ms),
        unknown_gpu_h: of_parts(sums.unknown_part_ms),
        utilisation: used.filter(|_| sums.held_part_ms > 0).map(share),
        lost_gpu_h: of_gpu_ms(sums.lost_gpu_ms),
    }
}

fn rounded(amount: u128, by: u128) -> u64 {
    u64::try_from((amount + by / 2) / by).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(by: &str) -> String {
        let problem = keys(by).unwrap_err();
        format!("{}; {}", problem.detail, problem.hint.unwrap())
    }

    #[test]
    fn keys_are_words_and_labels() {
        let label = Key::Label("project".to_owned());
        assert_eq!(
            keys("team, label:project").unwrap(),
            [("team".to_owned(), Key::Team), ("label:project".to_owned(), label)]
        );
        let all = "Allowed here: tenant, team, org, class, user, job, day or label:KEY";
        assert_eq!(refused("tenat"), format!("by: there is no key \"tenat\"; did you mean tenant? {all}"));
        assert_eq!(refused("label"), format!("by: there is no key \"label\"; did you mean label:KEY? {all}"));
        assert_eq!(refused(""), format!("by: there is no key \"\"; {all}"));
        assert_eq!(
            refused("team,label:"),
            "by: label: has no key after it; write the key of a label, such as label:project"
        );
        assert_eq!(refused("day,day"), "by: day is given twice; give it once");
    }

    #[test]
    fn a_window_begins_before_it_ends_and_is_over() {
        let day = 86_400_000;
        let now = Timestamp(30 * day);
        let of = |since, until| window(since, until, now).map_err(|problem| problem.detail);
        assert_eq!(of("7d", None), Ok(Window { from_ms: 23 * day, to_ms: 30 * day }));
        let days = Window { from_ms: 2 * day, to_ms: 29 * day };
        assert_eq!(of("1970-01-03T00:00Z", Some("1d")), Ok(days));
        assert_eq!(of("1d", Some("2026-11-01T00:00Z")), Ok(Window { from_ms: 29 * day, to_ms: 30 * day }));
        let wrong = "since 1d (1970-01-30T00:00:00Z) is not before until 2d (1970-01-29T00:00:00Z)";
        assert_eq!(of("1d", Some("2d")), Err(wrong.to_owned()));
        for until in [None, Some("2031-01-01T00:00Z")] {
            let wrong = of("2030-01-01T00:00Z", until).unwrap_err();
            assert!(wrong.ends_with("is not before until now (1970-01-31T00:00:00Z)"), "{wrong}");
        }
        let wrong = of("lately", None).unwrap_err();
        assert_eq!(wrong, "since: \"lately\" is neither a span of time nor a moment");
    }

    #[test]
    fn amounts_are_gpu_hours() {
        let mut sums = Sums::default();
        (sums.held_part_ms, sums.used_gpu_ms, sums.lost_gpu_ms) = (3000 * 7_200_000, 1_800_000, 36);
        let told = view(&sums);
        assert_eq!((told.allocated_gpu_h, told.used_gpu_h, told.lost_gpu_h), (2.0, Some(0.5), 0.00001));
        assert_eq!((told.utilisation, told.unknown_gpu_h), (Some(0.25), 0.0));
        assert_eq!(view(&Sums::default()).utilisation, None);
    }
}
