//! From a disk and a world to a controller.
//!
//! Everything is read before anything is written, so that a disk that is damaged, or behind what was acknowledged, is left
//! as it was found. The proof that a journal went back comes from outside of it: from the disk's own note of what was
//! acknowledged, and from the world, which remembers how far the journal had come that it last obeyed. A journal that
//! is behind is refused, or opened on request as a restore.

use wharf_engine::decide::input::Input;
use wharf_engine::model::observed::Report;
use wharf_engine::plan::Memory;
use wharf_engine::state::State;
use wharf_engine::units::Timestamp;

use super::snapshot::Snapshots;
use super::{Committed, Controller, Fault, Figures, Settings, WORLD};
use crate::codec;
use crate::disk::{Disk, DiskFault, HistoryKind, HistoryQuery, Standing};
use crate::history::{self, Projection};
use crate::outage::Reach;
use crate::selectors::Strings;
use crate::sent::Sent;
use crate::world::World;

/// What a disk holds, read and not yet written to.
pub struct Recovered<D> {
    disk: D,
    state: State,
    now: Timestamp,
    standing: Standing,
}

impl<D: Disk> Recovered<D> {
    /// Reads everything that the disk holds.
    pub fn read(mut disk: D) -> Result<Self, Fault> {
        let standing = disk.standing()?;
        let (state, now) = recover(&mut disk)?;
        Ok(Self { disk, state, now, standing })
    }

    /// The state that the disk holds.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether a controller over this world would be a restore: something that was acknowledged is not in the journal.
    pub fn is_behind(&self, world: &impl World) -> bool {
        self.disk.is_behind() || world.obeyed() > self.standing
    }

    /// Refuses a journal that is behind, and a world that is older than what the journal has heard of it.
    pub fn check(&self, world: &impl World) -> Result<(), Fault> {
        let mark = self.state.fleet.world();
        let older =
            |(id, generation)| mark.is_some_and(|mark| mark.world == id && mark.generation > generation);
        if world.heard().is_some_and(older) {
            return Err(Fault::WorldBehind);
        }
        if !self.is_behind(world) {
            return Ok(());
        }
        let (Standing { term, next: journal }, obeyed) = (self.standing, world.obeyed());
        let (obeyed, obeyed_term) = (obeyed.next, obeyed.term);
        Err(Fault::JournalBehind { journal, term, obeyed, obeyed_term })
    }

    /// Takes the term and meets the world, which must not be ahead of the journal.
    pub fn open<W: World>(self, world: W, settings: Settings) -> Result<Controller<D, W>, Fault> {
        self.check(&world)?;
        let mut controller = self.lead(world, settings)?;
        controller.carry_if_untold()?;
        controller.meet_world()?;
        controller.tick_plan_and_commit()?;
        controller.act();
        controller.snapshot_if_due()?;
        Ok(controller)
    }

    /// Like [`Recovered::open`], and a journal that is behind is brought up to what the world knows. Nothing is
    /// stopped, nothing is started a second time, and what nobody can decide is held.
    pub fn restore<W: World>(mut self, world: W, settings: Settings) -> Result<Controller<D, W>, Fault> {
        if !self.is_behind(&world) {
            return self.open(world, settings);
        }
        self.disk.begin_restore()?;
        let mut controller = self.lead(world, settings)?;
        controller.carry_if_untold()?;
        controller.figures.restored = true;
        controller.restore_from_world()?;
        // Without a plan: whoever has to leave by the rules is told so after the restore, by an ordinary turn.
        controller.commit()?;
        Ok(controller)
    }

    fn lead<W: World>(self, world: W, settings: Settings) -> Result<Controller<D, W>, Fault> {
        let Self { mut disk, mut state, mut now, standing: _ } = self;
        let term = disk.take_term(world.obeyed().term)?;
        // What another leader wrote in between is read after it has been fenced.
        replay(&mut disk, &mut state, &mut now)?;
        let snapshots = Snapshots::from(state.index() + settings.snapshot_after);
        Ok(Controller {
            now: now.max(world.now()),
            state,
            memory: Memory::default(),
            disk,
            world,
            term,
            strings: Strings::default(),
            sent: Sent::default(),
            reach: Reach::default(),
            settings,
            snapshots,
            records: Vec::new(),
            history: Projection::default(),
            figures: Figures::default(),
            committed: Committed::default(),
        })
    }
}

impl<D: Disk, W: World> Controller<D, W> {
    /// Takes the term, rebuilds the state and meets the world. A journal that is behind is refused.
    pub fn open(disk: D, world: W, settings: Settings) -> Result<Self, Fault> {
        Recovered::read(disk)?.open(world, settings)
    }

    /// Like [`Controller::open`], for a journal that may be behind: see [`Recovered::restore`].
    pub fn restore(disk: D, world: W, settings: Settings) -> Result<Self, Fault> {
        Recovered::read(disk)?.restore(world, settings)
    }

    /// A program that kept no rows of what is held has started work that nothing in history tells of.
    fn carry_if_untold(&mut self) -> Result<(), Fault> {
        if self.state.tenants.version() == 0 {
            return Ok(());
        }
        // Every policy has written what it promises.
        let kind = Some(HistoryKind::Guarantee);
        let query = HistoryQuery { kind, before: Some(u64::MAX), limit: 1, ..HistoryQuery::default() };
        if !self.disk.history(&query)?.is_empty() {
            return Ok(());
        }
        let mut told = history::carried(&self.state, self.now);
        told.extend(history::promised(&self.state, self.now));
        Ok(self.disk.trim_history(self.term, 0, &told)?)
    }

    /// Learns from a world that is ahead of the journal.
    fn restore_from_world(&mut self) -> Result<(), Fault> {
        let recalled = self.world.recall()?;
        self.meet_nodes(&recalled)?;
        let report = Report { nodes: recalled.observed_nodes(), ..recalled.report.clone() };
        self.decide_and_apply(&WORLD, &Input::Restore(report)).map_err(|_| Fault::WorldBehind)?;
        // Work on a device that has failed is lost by a second look, as when a world is first met; and jobs that the world
        // owns are as it says.
        let any_owned = !recalled.jobs.is_empty() || self.state.jobs.owned().next().is_some();
        if recalled.has_failed_gpus() || any_owned {
            self.take_report(recalled).map_err(|_| Fault::WorldBehind)?;
        }
        Ok(())
    }
}

/// The state that a disk holds, and the time of its last event.
pub fn recover(disk: &mut impl Disk) -> Result<(State, Timestamp), Fault> {
    let mut now = Timestamp(0);
    let mut state = State::default();
    if let Some(snapshot) = disk.snapshot()? {
        let events = codec::decode_all(snapshot.version, &snapshot.body)?;
        state = State::resume(&events, snapshot.next);
        now = Timestamp(snapshot.at);
        if codec::state_hash(&state) != snapshot.state_hash {
            return Err(Fault::HashDiffers { index: snapshot.next });
        }
    }
    replay(disk, &mut state, &mut now)?;
    Ok((state, now))
}

/// Applies what the journal holds beyond the state.
fn replay(disk: &mut impl Disk, state: &mut State, now: &mut Timestamp) -> Result<(), DiskFault> {
    disk.read(state.index(), &mut |index, record| {
        let event = codec::decode(&record, &format!("journal index {index}"))?;
        state.apply(&event);
        *now = (*now).max(Timestamp(record.at));
        Ok(())
    })?;
    Ok(())
}
