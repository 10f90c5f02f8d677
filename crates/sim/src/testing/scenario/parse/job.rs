//! `submit b vision batch 8 gang x4 for 10m`, and the same for `running … on n1`.

use wharf_engine::decide::input::BookingRequest;
use wharf_engine::model::action::StartTask;
use wharf_engine::model::dependency::{After, ArrayMember, ArrayRequest, Condition};
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Service, Spec, Topology};
use wharf_engine::model::policy::Mode;
use wharf_engine::model::submission::{GroupSelectors, Submission};
use wharf_engine::state::bookings::Booker;
use wharf_engine::units::{GpuMask, GpuUnits, Millis, TenantId, Timestamp, TrustId, Uid};

use super::super::{Ask, Running, Step};
use super::Reader;
use super::tasks::Alike;
use super::words::{Words, one_of, unknown};

/// Work without `for` outlasts every story.
const FOR_EVER: Millis = Millis(365 * 86_400_000);

const OPTIONS: [&str; 34] = [
    "group NAME",
    "copies N, or copies N of N",
    "xN",
    "tasks N",
    "min N",
    "max N",
    "gang",
    "share 0.5",
    "slice 1g.10gb, or slice 20GiB",
    "or SHARE, SLICE or NUMBER",
    "time-slicing",
    "trust DOMAIN",
    "priority N",
    "cpu N",
    "memory NGiB",
    "model M, M",
    "on K=V",
    "tolerates KEY",
    "within LEVEL",
    "island",
    "limit 1h",
    "estimate 1h",
    "for 10m",
    "fails after 1m",
    "checkpoint every 10m grace 30s",
    "saves in 2s",
    "stops in 5s",
    "cannot checkpoint",
    "not preemptible",
    "retries N",
    "booking NAME",
    "after JOB, or after JOB any",
    "array N at most N",
    "on NODE (running only)",
];

/// What a line says of a job.
struct Wish {
    /// What is said before the first group.
    own: Alike,
    groups: Vec<(String, Alike)>,
    max: Option<u32>,
    priority: i32,
    gang_within: Option<String>,
    topology: Topology,
    preemptible: bool,
    checkpoint: Option<Checkpoint>,
    time_limit: Option<Millis>,
    estimate: Option<Millis>,
    retries: u32,
    behaviour: Behaviour,
    places: Vec<String>,
    trust: Option<String>,
    booking: Option<String>,
    after: Vec<After>,
    /// So many members, of which so many at a time.
    array: Option<(u32, u32)>,
}

/// What it really does, which only the world will know.
struct Behaviour {
    duration: Millis,
    fails_after: Option<Millis>,
    saves_in: Millis,
    stops_in: Millis,
    can_save: bool,
}

impl Default for Wish {
    fn default() -> Self {
        let behaviour = Behaviour {
            duration: FOR_EVER,
            fails_after: None,
            saves_in: Millis::from_secs(2),
            stops_in: Millis(0),
            can_save: true,
        };
        Self {
            own: Alike::default(),
            groups: Vec::new(),
            max: None,
            priority: 0,
            gang_within: None,
            topology: Topology::default(),
            preemptible: true,
            checkpoint: None,
            time_limit: None,
            estimate: None,
            retries: 2,
            behaviour,
            places: Vec::new(),
            trust: None,
            booking: None,
            after: Vec::new(),
            array: None,
        }
    }
}

impl Reader {
    pub(super) fn submit(&mut self, words: &mut Words<'_>) -> Result<Step, String> {
        let (job, places) = self.job(words)?;
        if let Some(node) = places.first() {
            return Err(format!("`on {node}` is for `running`; a job that is submitted says `on zone=a`"));
        }
        Ok(Step::Ask(Ask::Submit(Box::new(job))))
    }

    pub(super) fn running(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        self.before_the_story("running")?;
        let (job, places) = self.job(words)?;
        words.end()?;
        if job.spec.has_groups() {
            return Err("work that runs already has no groups; submit it instead".to_owned());
        }
        let tasks = (0..job.spec.tasks).map(|task| {
            let at = usize::try_from(task).unwrap_or_default() % places.len().max(1);
            let node = places.get(at).ok_or("work that runs is somewhere: add `on n1`")?;
            self.hold(task, node, job.spec.shape.gpus)
        });
        let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
        self.scenario.running.push(Running { job, tasks });
        Ok(())
    }

    /// The first GPUs of a node that no line before holds.
    fn hold(&mut self, task: u32, node: &str, ask: GpuAsk) -> Result<StartTask, String> {
        let (count, units_each) = match ask {
            GpuAsk::Whole(count) => (count, GpuUnits::WHOLE),
            GpuAsk::Share(units) => (1, units),
            GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => {
                return Err("work that runs holds whole GPUs or a share; submit a slice instead".to_owned());
            }
        };
        let report = self.scenario.nodes.iter().find(|report| report.node.name == node);
        let size = report.map_or(0, |report| report.node.gpus.len());
        let mut gpus = GpuMask::default();
        for gpu in 0..size {
            let held = self.held.entry((node.to_owned(), gpu)).or_default();
            if gpus.count() < count && *held + units_each.parts() <= GpuUnits::WHOLE.parts() {
                *held += units_each.parts();
                gpus.insert(gpu);
            }
        }
        if gpus.count() < count {
            return Err(format!("{node} has no room for {count} more GPUs beside what runs on it"));
        }
        let enforced = if units_each < GpuUnits::WHOLE { Mode::Mps } else { Mode::Whole };
        let (node, slice, memory_mib) = (node.to_owned(), None, None);
        Ok(StartTask { task, node, gpus, units_each, enforced, slice, memory_mib })
    }

    fn job(&mut self, words: &mut Words<'_>) -> Result<(Submission, Vec<String>), String> {
        let name = words.need("the name of the job")?.to_owned();
        let tenant = self.tenant(words.need("the tenant")?)?;
        let class = class(words)?;
        let mut wish = Wish::default();
        while let Some(word) = words.next() {
            self.option(word, words, &mut wish)?;
        }
        self.jobs.insert(name.clone());
        for index in 0..wish.array.map_or(0, |(members, _)| members) {
            self.jobs.insert(ArrayMember::member_name(&name, index));
        }
        self.submission(name, tenant, class, wish)
    }

    /// `book B vision 8 x4 from 2h for 8h by operator`: a shape as of a job, and when.
    pub(super) fn book(&mut self, words: &mut Words<'_>) -> Result<Step, String> {
        let name = words.need("the name of the booking")?.to_owned();
        let tenant = self.tenant(words.need("the tenant")?)?;
        let (mut wish, mut by) = (Wish::default(), Booker::Tenant);
        let (mut from, mut lasts) = (None, None);
        while let Some(word) = words.next() {
            match word {
                "from" => from = Some(words.span("when it begins, as a span of the story, like 2h")?),
                "for" => lasts = Some(words.span("how long it lasts, like 8h")?),
                "by" => {
                    words.expect("operator")?;
                    by = Booker::Operator;
                }
                _ => self.option(word, words, &mut wish)?,
            }
        }
        let from = from.ok_or("when does it begin? write `from 2h`")?;
        let span = lasts.ok_or("how long does it last? write `for 8h`")?;
        self.bookings.insert(name.clone());
        let (job, _) = self.submission(name, tenant, Class::Batch, wish)?;
        Ok(Step::Ask(Ask::Book(Box::new(BookingRequest { job, by, from: Timestamp(from.0), span }))))
    }

    /// `cancel booking B`.
    pub(super) fn unbook(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let name = words.need("the name of a booking")?;
        let known: Vec<&str> = self.bookings.iter().map(String::as_str).collect();
        if !known.contains(&name) {
            return Err(unknown("no booking is called", name, &known));
        }
        Ok(Step::Ask(Ask::Unbook { name: name.to_owned() }))
    }

    fn submission(
        &mut self,
        name: String,
        tenant: String,
        class: Class,
        wish: Wish,
    ) -> Result<(Submission, Vec<String>), String> {
        self.submissions += 1;
        let uid = Uid(self.submissions);
        self.uids.insert(name.clone(), uid);
        let members = 0..wish.array.map_or(0, |(members, _)| members);
        for index in members.clone() {
            self.uids.insert(ArrayMember::member_name(&name, index), ArrayMember::uid(uid, index));
            self.submissions += 1;
        }
        let array = wish.array.map(|(_, at_most)| ArrayRequest { indexes: members.collect(), at_most });
        let spread = u32::try_from(wish.places.len().max(1)).unwrap_or(u32::MAX);
        let tasks = wish.own.tasks.unwrap_or(spread);
        let groups = wish.groups.iter().map(|(name, tasks)| tasks.group(name));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let shape = match wish.groups.first() {
            Some((_, first)) => first.shape()?,
            None => wish.own.shape()?,
        };
        let mut spec = Spec {
            name,
            tenant: TenantId::default(),
            class,
            priority: wish.priority,
            tasks,
            min: wish.own.min(tasks),
            shape,
            groups,
            topology: wish.topology,
            preemptible: wish.preemptible,
            trust: TrustId::default(),
            time_limit: wish.time_limit,
            estimate: wish.estimate,
            service: wish.max.map(|max| Service { max, replicas: tasks }),
            checkpoint: wish.checkpoint,
            booking: None,
            retries: wish.retries,
            labels: Vec::new(),
            payload: wish.behaviour.payload(),
            after: Vec::new(),
            array: None,
            submitted_by: String::new(),
        };
        spec.derive_from_groups();
        let (nodes, gang_within) = (wish.own.nodes.source(), wish.gang_within);
        let selectors = |tasks: &Alike| GroupSelectors {
            nodes: tasks.nodes.source(),
            devices: tasks.devices(),
            any_of_devices: Vec::new(),
        };
        let groups = wish.groups.iter().map(|(_, tasks)| selectors(tasks)).collect();
        let (trust, devices, booking) = (wish.trust, wish.own.devices(), wish.booking);
        let job = Submission { after: wish.after, array, ..Submission::of(uid, tenant, spec) };
        Ok((Submission { trust, nodes, devices, groups, gang_within, booking, ..job }, wish.places))
    }

    fn option(&self, word: &str, words: &mut Words<'_>, wish: &mut Wish) -> Result<(), String> {
        if wish.tasks().option(word, words)? {
            return Ok(());
        }
        match word {
            "group" => {
                let name = words.need("the name of the group")?.to_owned();
                wish.groups.push((name, Alike::default()));
            }
            "island" => wish.topology.task_on_island = true,
            "max" => wish.max = Some(words.number("the most replicas of a service")?),
            "trust" => wish.trust = Some(words.need("a trust domain, like vendor")?.to_owned()),
            "priority" => wish.priority = words.number("a priority, like 5")?,
            "on" => self.on(words, wish)?,
            "within" => wish.gang_within = Some(words.need("the name of a level, like leaf")?.to_owned()),
            "estimate" => wish.estimate = Some(words.span("how long it thinks it runs, like 1h")?),
            "limit" => wish.time_limit = Some(words.span("how long it may run, like 1h")?),
            "for" => wish.behaviour.duration = words.span("how long, like 10m")?,
            "fails" => {
                words.expect("after")?;
                wish.behaviour.fails_after = Some(words.span("how long, like 1m")?);
            }
            "saves" => {
                words.expect("in")?;
                wish.behaviour.saves_in = words.span("how long, like 2s")?;
            }
            "stops" => {
                words.expect("in")?;
                wish.behaviour.stops_in = words.span("how long, like 5s")?;
            }
            "checkpoint" => wish.checkpoint = Some(checkpoint(words)?),
            "cannot" => {
                words.expect("checkpoint")?;
                wish.behaviour.can_save = false;
            }
            "not" => {
                words.expect("preemptible")?;
                wish.preemptible = false;
            }
            "booking" => wish.booking = Some(words.need("the name of a booking")?.to_owned()),
            "after" => {
                let name = words.need("the name of a job")?;
                let known: Vec<&str> = self.uids.keys().map(String::as_str).collect();
                let uid = self.uids.get(name).ok_or_else(|| unknown("no job is called", name, &known))?;
                let when = if words.take("any") { Condition::Any } else { Condition::Ok };
                wish.after.push(After { uid: *uid, when });
            }
            "array" => {
                let members = words.number("how many members")?;
                words.expect_all(["at", "most"])?;
                wish.array = Some((members, words.number("how many at a time")?));
            }
            "retries" => wish.retries = words.number("how many failures it survives")?,
            other => number(other, wish.tasks())?,
        }
        Ok(())
    }

    fn on(&self, words: &mut Words<'_>, wish: &mut Wish) -> Result<(), String> {
        let is_node = |word: &&str| self.node_names().any(|name| name == *word);
        let Some(first) = words.peek().filter(|word| !word.contains('=')) else {
            let (key, value) = words.pair()?;
            wish.tasks().nodes.labels.entry(key).or_default().push(value);
            return Ok(());
        };
        while let Some(node) = words.peek().filter(is_node) {
            words.next();
            wish.places.push(node.to_owned());
        }
        let known: Vec<&str> = self.node_names().collect();
        if wish.places.is_empty() { Err(unknown("no node is called", first, &known)) } else { Ok(()) }
    }
}

impl Wish {
    /// The tasks that the words after the last group are about.
    fn tasks(&mut self) -> &mut Alike {
        self.groups.last_mut().map_or(&mut self.own, |(_, tasks)| tasks)
    }
}

fn class(words: &mut Words<'_>) -> Result<Class, String> {
    one_of("there is no class", words.need("the class")?)
}

/// `8`, or `x4`.
fn number(word: &str, wish: &mut Alike) -> Result<(), String> {
    let wrong = || unknown("a job has no", word, &OPTIONS);
    if let Some(tasks) = word.strip_prefix('x') {
        wish.tasks = Some(tasks.parse().map_err(|_| wrong())?);
    } else {
        wish.gpus = Some(GpuAsk::Whole(word.parse().map_err(|_| wrong())?));
    }
    Ok(())
}

fn checkpoint(words: &mut Words<'_>) -> Result<Checkpoint, String> {
    words.expect("every")?;
    let every = words.span("how often, like 10m")?;
    words.expect("grace")?;
    let grace = words.span("how long it needs, like 30s")?;
    let on_request = words.take("on-request");
    Ok(Checkpoint { every, grace, on_request })
}

impl Behaviour {
    fn payload(&self) -> String {
        let payload = serde_json::json!({
            "duration_ms": self.duration.0,
            "fail_after_ms": self.fails_after.map(|after| after.0),
            "checkpoint_ms": self.saves_in.0,
            "stop_ms": self.stops_in.0,
            "checkpoint": if self.can_save { "ok" } else { "fail" },
        });
        payload.to_string()
    }
}
