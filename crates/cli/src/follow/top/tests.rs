//! What the screen looks like, and which key does what.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use wharf_api::v1::{
    ActiveRow, DecisionTimes, JobCount, JobState, JournalView, LineView, ModeCounts, PoolView, QueueRow,
    TenantView, VerdictWord, schema_of,
};
use wharf_engine::model::job::Class;

use super::*;

fn pool(model: &str, gpus: u32, healthy: u32, allocated: f64, used_sm: Option<f64>) -> PoolView {
    PoolView {
        model: model.into(),
        gpus,
        healthy,
        allocated,
        used_sm,
        modes: ModeCounts::default(),
        slices: 0,
        tax: None,
        memory_used_mib: None,
        memory_mib: None,
    }
}

fn tenant(path: &str, guaranteed: Option<f64>, used: f64, limit: Option<f64>, waiting: u32) -> TenantView {
    let line = |resource: &str| LineView {
        resource: resource.into(),
        guaranteed,
        limit,
        fair_share: used * 1.25,
        used,
        borrowed: 0.0,
        lent: 0.0,
        demand: used * 2.0,
        past: None,
    };
    TenantView {
        path: path.into(),
        lines: vec![line("any"), line("cpu")],
        weight: 1,
        priority: 0,
        waiting,
        running: 7,
    }
}

fn row(number: u64) -> QueueRow {
    QueueRow {
        uid: format!("{number:032x}"),
        name: format!("sweep-{number}"),
        tenant: "lab/nlp".into(),
        class: Class::Batch,
        gpus: 8.0,
        since_ms: 1_763_250_301_000 - number * 90_000,
        verdict: VerdictWord::Waits,
        reason: Some("WaitingForCapacity".into()),
        text: "4 of the 8 GPUs it needs are free.".into(),
    }
}

fn active(number: u32) -> ActiveRow {
    ActiveRow {
        uid: format!("{number:032x}"),
        name: format!("train-{number}"),
        tenant: "lab/vision".into(),
        class: Class::Batch,
        state: if number == 2 { JobState::Leaving } else { JobState::Running },
        gpus: [64.0, 8.0, 0.25][usize::try_from(number % 3).unwrap()],
        sm_active: (number != 1).then_some(0.38),
        since_ms: (number != 3).then_some(1_763_250_301_000 - u64::from(number) * 3_600_000),
        nodes: vec![format!("n{number}")],
        node_count: if number == 0 { 8 } else { 1 },
        text: "it runs; its time limit is up in 1h30m".into(),
    }
}

fn summary() -> Summary {
    let count = |class, state, count| JobCount { class, state, count };
    Summary {
        schema: schema_of::<Summary>(),
        now_ms: 1_763_250_301_000,
        pools: vec![
            pool("h100", 256, 248, 240.0, Some(98.2)),
            PoolView {
                modes: ModeCounts { whole: 112, mig: 12, mps: 4, time_slicing: 0 },
                slices: 31,
                tax: Some(0.031),
                memory_used_mib: Some(4_200_000),
                memory_mib: Some(10_321_920),
                ..pool("a100", 128, 128, 32.5, Some(30.0))
            },
            pool("l40s", 64, 64, 64.0, None),
            pool("", 0, 0, 0.0, None),
        ],
        tenants: vec![
            tenant("lab", None, 336.5, None, 13),
            tenant("lab/nlp", Some(128.0), 200.0, Some(256.0), 0),
            tenant("lab/vision", Some(128.0), 100.0, None, 13),
            tenant("lab/a-tenant-with-quite-a-long-name", Some(8.0), 4.0, None, 0),
        ],
        queue: (0..13).map(row).collect(),
        active: (0..8).map(active).collect(),
        jobs: vec![
            count(Class::Inference, JobState::Running, 12),
            count(Class::Batch, JobState::Running, 33),
            count(Class::Batch, JobState::Waiting, 13),
        ],
        journal: JournalView { index: 18_234, term: 3 },
        decision_ms: Some(DecisionTimes { p50: 0.8, p99: 4.125 }),
    }
}

fn view<'a>(summary: Option<&'a Summary>, trouble: Option<&'a str>, queue: usize) -> View<'a> {
    let scroll = Scroll { queue, ..Scroll::START };
    View { server: "http://127.0.0.1:8470", summary, trouble, scroll, live: true }
}

/// The frame as a terminal of that size shows it.
fn drawn(view: &View<'_>, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |to: &mut ratatui::Frame<'_>| {
        let drawn = frame(view, to.area().as_size());
        to.buffer_mut().merge(&drawn);
    };
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn assert_looks(buffer: &Buffer, file: &str, expected: &str) {
    let shown = text(buffer);
    if std::env::var_os("WHARF_BLESS").is_some_and(|value| value == "1") {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top").join(file);
        std::fs::write(path, &shown).unwrap();
        return;
    }
    assert_eq!(shown, expected, "{file} looks different; WHARF_BLESS=1 accepts:\n{shown}");
}

#[test]
fn it_fits_on_a_small_terminal() {
    let summary = summary();
    let buffer = drawn(&view(Some(&summary), None, 0), 80, 24);
    assert_looks(&buffer, "80x24.txt", include_str!("../../../tests/top/80x24.txt"));
}

#[test]
fn it_uses_a_larger_terminal() {
    let summary = summary();
    let buffer = drawn(&view(Some(&summary), None, 0), 120, 40);
    assert_looks(&buffer, "120x40.txt", include_str!("../../../tests/top/120x40.txt"));
}

#[test]
fn once_shows_everything_and_no_keys() {
    let text = once("http://127.0.0.1:8470", &summary(), 10);
    assert!(text.contains("sweep-12") && text.contains("lab/vision"), "{text}");
    assert!(!text.contains("q quit"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_is_unknown_is_a_question_mark() {
    let summary = Summary { decision_ms: None, ..summary() };
    let text = once("s", &summary, 100);
    assert!(text.lines().any(|line| line.contains("l40s") && line.ends_with("used    ?")), "{text}");
    assert!(text.contains("128.2 used + ? of 64"), "an unknown pool is no zero: {text}");
    assert!(text.contains("decides ?, none yet"), "{text}");
}

#[test]
fn a_lost_server_is_told_in_a_banner_over_the_last_numbers() {
    let summary = summary();
    let buffer = drawn(&view(Some(&summary), Some("no answer from X for 5s"), 0), 80, 24);
    let text = text(&buffer);
    assert!(text.starts_with(" no answer from X for 5s\n"), "{text}");
    assert!(text.contains("h100"), "{text}");
    let first = buffer.cell((1, 0)).unwrap();
    assert_eq!(first.fg, Color::Indexed(160));
    assert!(first.modifier.contains(Modifier::REVERSED));
}

#[test]
fn before_the_first_answer_and_in_a_tiny_window_it_says_so() {
    let waiting = text(&drawn(&view(None, None, 0), 80, 24));
    assert!(waiting.contains("waiting for the first answer"), "{waiting}");
    let tiny = text(&drawn(&view(Some(&summary()), None, 0), 30, 8));
    assert!(tiny.contains("80x24"), "{tiny}");
    text(&drawn(&view(Some(&summary()), None, 0), 1, 1));
}

#[test]
fn an_idle_fleet_says_that_nothing_runs_or_waits() {
    let summary =
        Summary { queue: vec![], active: vec![], jobs: vec![], pools: vec![], tenants: vec![], ..summary() };
    let text = text(&drawn(&view(Some(&summary), None, 0), 80, 24));
    assert!(text.contains("nothing waits") && text.contains("nothing runs"), "{text}");
}

#[test]
fn each_list_scrolls_to_its_end_and_no_further() {
    let mut live = Live::new("s");
    live.summary = Some(summary());
    live.move_by(Wish::Down(5), 6);
    assert_eq!(live.scroll.queue, 5);
    live.move_by(Wish::Down(50), 6);
    assert_eq!(live.scroll.queue, 7);
    live.move_by(Wish::Up(50), 6);
    assert_eq!(live.scroll.queue, 0);
    live.move_by(Wish::Last, 6);
    live.move_by(Wish::OtherList, 6);
    live.move_by(Wish::Down(50), 6);
    assert_eq!((live.scroll.running, live.scroll.queue), (2, 7));
    let summary = summary();
    let text = text(&drawn(&view(Some(&summary), None, 12), 80, 24));
    assert!(!text.contains("sweep-9 ") && text.contains("sweep-10 "), "{text}");
    assert!(text.contains("11-13 of 13") && text.contains("1-3 of 8"), "{text}");
}

#[test]
fn a_sentence_is_never_cut_inside_a_word() {
    let why = "it needs 24 GPUs; only 3 can be had together, in its shape";
    let queue = (0..9).map(|number| QueueRow { text: why.into(), ..row(number) }).collect();
    let summary = Summary { queue, ..summary() };
    for width in 80..200 {
        let text = text(&drawn(&view(Some(&summary), None, 0), width, 24));
        for line in text.lines().filter(|line| line.contains("WaitingForCapacity")) {
            let Some((_, said)) = line.split_once("WaitingForCapacity  ") else { continue };
            let cut = said.trim_end_matches('…');
            let at_the_end_of_a_word =
                why.starts_with(cut) && !why[cut.len()..].starts_with(char::is_alphanumeric);
            assert!(at_the_end_of_a_word, "{width}: {line}");
        }
    }
}

#[test]
fn keys_do_what_the_footer_says() {
    let key = |code| wish(KeyEvent::new(code, KeyModifiers::NONE), 9);
    assert_eq!(key(KeyCode::Char('q')), Some(Wish::Quit));
    assert_eq!(key(KeyCode::Esc), Some(Wish::Quit));
    assert_eq!(key(KeyCode::PageDown), Some(Wish::Down(9)));
    assert_eq!(key(KeyCode::Up), Some(Wish::Up(1)));
    assert_eq!(key(KeyCode::Tab), Some(Wish::OtherList));
    assert_eq!(key(KeyCode::Char('c')), None);
    assert_eq!(wish(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 9), Some(Wish::Quit));
}

#[test]
fn an_error_and_a_long_silence_are_trouble() {
    let mut live = Live::new("http://x");
    assert_eq!(live.trouble(), None);
    live.learn(Err(ClientError::Protocol { server: "http://x".into(), what: "odd".into() }));
    assert!(live.trouble().unwrap().contains("odd"));
    live.learn(Ok(summary()));
    assert_eq!(live.trouble(), None);
    if let Some(before) = Instant::now().checked_sub(Duration::from_secs(70)) {
        live.good_at = before;
        assert_eq!(live.trouble().unwrap(), "no answer from http://x for 1m, trying again");
    }
}

#[test]
fn without_colour_the_picture_is_the_same() {
    let summary = summary();
    let coloured = drawn(&view(Some(&summary), None, 0), 80, 24);
    let plain = without_colour(coloured.clone());
    assert_eq!(text(&plain), text(&coloured));
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset));
}

#[test]
fn many_pools_and_tenants_leave_the_lists_their_rows() {
    let pools = (0..30).map(|number| pool(&format!("model-{number}"), 8, 8, 4.0, None)).collect();
    let tenants = (0..30).map(|number| tenant(&format!("t{number}"), None, 1.0, None, 0)).collect();
    let summary = Summary { pools, tenants, ..summary() };
    let text = text(&drawn(&view(Some(&summary), None, 0), 80, 24));
    assert!(text.contains("sweep-2 ") && text.contains("train-2 ") && text.contains("model-2 "), "{text}");
    assert!(text.contains(" more: wharf get tenants"), "{text}");
    assert!(once("s", &summary, 80).contains("model-29 "));
}
