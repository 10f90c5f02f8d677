//! Answers of a control plane, made up for tests.

use std::collections::BTreeMap;

use wharf_api::v1::{
    BlockerView, BookingState, BookingView, EndedAs, EndedJobView, Explanation, FunnelStage, GpuView, Health,
    HolderView, JobState, JobView, LostPlacesView, NodeView, PlacementView, Rule, VerdictView, VerdictWord,
    VictimView, schema_of,
};
use wharf_engine::model::job::Class;
use wharf_engine::model::policy::Mode;

/// A task on a node.
pub(crate) fn placed(task: u32, node: &str, gpus: &[u32], share: f64) -> PlacementView {
    PlacementView {
        task,
        group: None,
        node: node.into(),
        gpus: gpus.to_vec(),
        share,
        enforced: Mode::Whole,
        slice: None,
        memory_mib: None,
        tax: 0.0,
    }
}

/// A job that ran out of memory.
pub(crate) fn ended() -> EndedJobView {
    EndedJobView {
        uid: "abc".into(),
        name: "hungry".into(),
        tenant: "lab/nlp".into(),
        class: "batch".into(),
        tasks: 1,
        gpus_per_task: 1.0,
        outcome: EndedAs::Failed,
        reason: Some("OutOfMemory".into()),
        text: "task 0 on n1 was killed: it used more memory than it may".into(),
        exit_code: None,
        submitted_at_ms: 1_000_000,
        first_start_ms: Some(1_000_000),
        ended_at_ms: 1_005_000,
        ran_ms: 5_000,
        time_limit_ms: None,
        attempts: 1,
        evictions: 0,
        failures: 1,
        ooms: 1,
        memory_peak_mib: Some(81_920),
        labels: BTreeMap::new(),
        submitted_by: None,
    }
}

/// A GPU that one job has whole.
pub(crate) fn gpu(index: u32, sm_active: Option<f64>) -> GpuView {
    GpuView {
        failure: None,
        node: "n1".into(),
        index,
        model: "h100".into(),
        memory_gb: Some(80),
        island: 0,
        health: Health::Healthy,
        allocated: 1.0,
        jobs: vec!["lab/nlp/a".into()],
        sm_active,
        mode: Mode::Whole,
        slices: Vec::new(),
        free: 0.0,
        trust: None,
        tenants: vec!["lab/nlp".into()],
        memory_used_mib: None,
        memory_mib: Some(81_152),
    }
}

/// An answer of one word.
pub(crate) fn verdict(verdict: VerdictWord, reason: &str, text: &str) -> VerdictView {
    VerdictView {
        verdict,
        reason: Some(reason.into()),
        text: text.into(),
        need: None,
        have: None,
        group: None,
        funnel: Vec::new(),
        blockers: Vec::new(),
        ahead: None,
        order: None,
        until_ms: None,
        policy_version: 3,
        basis: 18_234,
    }
}

/// A gang of four tasks that waits for room on one leaf.
pub(crate) fn waiting() -> JobView {
    let stages = [
        ("fleet", 512),
        ("healthy", 504),
        ("right model", 256),
        ("allowed", 256),
        ("free", 40),
        ("free together", 16),
        ("within quota", 16),
    ];
    let funnel = stages.map(|(stage, gpus)| FunnelStage { stage: stage.into(), gpus });
    let text = "16 of the 32 GPUs it needs are free on one leaf.";
    let blocker = BlockerView { what: "GPUs free together".into(), need: 32.0, have: 16.0, gap: 16.0 };
    JobView {
        uid: "00000000000000000000000000000abc".into(),
        name: "llama-70b".into(),
        tenant: "lab/nlp".into(),
        class: Class::Batch,
        priority: 0,
        tasks: 4,
        min: 4,
        replicas_max: None,
        booking: None,
        gpus_per_task: 8.0,
        groups: Vec::new(),
        state: JobState::Waiting,
        verdict: VerdictView {
            need: Some(32.0),
            have: Some(16.0),
            funnel: funnel.to_vec(),
            blockers: vec![blocker],
            ahead: Some(3),
            ..verdict(VerdictWord::Waits, "WaitingForRoomTogether", text)
        },
        submitted_at_ms: 1_000_000,
        first_start_ms: Some(1_060_000),
        running_tasks: 0,
        placements: Vec::new(),
        replacing: None,
        estimate: None,
        time_limit_ms: None,
        limit_at_ms: None,
        ran_ms: 0,
        attempts: 2,
        evictions: 1,
        failures: 0,
        last_failure: None,
        after: Vec::new(),
        array: None,
        labels: BTreeMap::new(),
        submitted_by: None,
    }
}

/// The same job when it runs.
pub(crate) fn running() -> JobView {
    JobView {
        state: JobState::Running,
        verdict: verdict(VerdictWord::Running, "Running", "All of its tasks run."),
        running_tasks: 4,
        placements: (0..4)
            .map(|task| placed(task, &format!("n{task}"), &[0, 1, 2, 3, 4, 5, 6, 7], 1.0))
            .collect(),
        ..waiting()
    }
}

/// A job that has to leave for a guarantee.
pub(crate) fn victim() -> VictimView {
    VictimView {
        job: "filler".into(),
        tenant: "lab/vision".into(),
        uid: "00000000000000000000000000000def".into(),
        tasks: vec![0, 1],
        whole: true,
        rule: Rule::Guarantee,
        lost_gpu_s: Some(960.0),
        cost_gpu_s: 1440.0,
        gain_gpu_s: None,
    }
}

/// The whole answer about a job.
pub(crate) fn explanation(job: JobView) -> Explanation {
    let (evictions, tasks) = (Vec::new(), Vec::new());
    let (earmark, chosen, ooms) = (None, None, None);
    let (reservation, missed, schema) = (None, Vec::new(), schema_of::<Explanation>());
    let unpromised = None;
    Explanation { schema, job, evictions, earmark, reservation, missed, unpromised, chosen, tasks, ooms }
}

/// A node of eight GPUs that is up and open, with nothing on it.
pub(crate) fn node(name: &str) -> NodeView {
    NodeView {
        name: name.into(),
        model: "h100".into(),
        gpus: 8,
        gpus_allocated: 0.0,
        gpus_others: 0,
        up: true,
        cordoned: false,
        cpu_milli: 0,
        cpu_free_milli: 0,
        memory: 0,
        memory_free: 0,
        sm_active: None,
        levels: BTreeMap::default(),
        tasks: 0,
        cordon_reason: None,
        cordoned_by: None,
        drain: None,
        maintenance: Vec::new(),
        waits_for: Vec::new(),
    }
}

/// A window that is placed, with somebody in its way.
pub(crate) fn booking() -> BookingView {
    BookingView {
        name: "friday".into(),
        tenant: "lab/nlp".into(),
        by: "operator".into(),
        state: BookingState::Placed,
        tasks: 4,
        gpus_per_task: 8.0,
        from_ms: 7_200_000,
        until_ms: 10_800_000,
        booked_ms: 0,
        places_ms: 3_600_000,
        places: Vec::new(),
        short: 1,
        used: false,
        no_show_ms: Some(8_100_000),
        jobs: vec!["a".into(), "b".into()],
        in_the_way: vec![HolderView {
            job: "x".into(),
            tenant: "lab/ops".into(),
            ends_ms: None,
            learned: false,
            asked_ms: None,
        }],
        lost: vec![LostPlacesView { tasks: 1, why: "place_gone".into(), at_ms: 3_600_000 }],
    }
}
