//! The follower's state is the fold of what was handed over, whoever reads meanwhile and for however long.

use std::time::Duration;

use wharf_controller::codec;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};

use super::*;
use crate::tests::nowhere::Nowhere;
use crate::tests::read;

fn first() -> Replica {
    Replica::of(&Controller::open(MemoryDisk::new(), Nowhere::default(), Settings::default()).unwrap())
}

/// A follower with nothing in it, from which the golden journals can be told.
fn started() -> (FollowerHandle, Latest, Vitals) {
    let first = first();
    let vitals = first.vitals.clone();
    let empty = first.next(Arc::default(), Arc::default(), vitals.clone());
    empty.progress.committed.store(0, Ordering::Relaxed);
    let (followed, latest, _) = start(empty, Prices::default());
    (followed, latest, vitals)
}

/// Numbers that are as good as random, the same each time.
fn dice() -> impl FnMut(usize) -> usize {
    let mut seed: u32 = 7;
    move |sides| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(seed >> 16).unwrap() % sides
    }
}

/// Hands over a turn and returns its replica.
fn tell(followed: &mut FollowerHandle, events: Vec<Event>, vitals: &Vitals) -> Arc<Replica> {
    let (told, replica) = sync_channel(1);
    let deliver: Delivery = Box::new(move |replica| told.send(Arc::clone(replica)).unwrap());
    let turn = CommittedTurn::new(events, None, vitals.clone(), vec![deliver]);
    followed.hand_over(turn).unwrap();
    replica.recv().unwrap()
}

#[test]
fn every_turn_is_published_as_it_was_while_readers_hold_others() {
    let mut most_held = 0;
    for name in ["rules", "bookings", "services", "maintenance", "restore", "devices"] {
        let (mut followed, _, vitals) = started();
        let mut roll = dice();
        let mut state = State::default();
        let mut held: Vec<(Arc<Replica>, [u8; 32])> = Vec::new();
        let mut events = read(&format!("journal-v1-{name}.jsonl")).into_iter().peekable();
        while events.peek().is_some() {
            let size = roll(40);
            let turn: Vec<Event> = events.by_ref().take(size).collect();
            state.apply_all(&turn);
            let replica = tell(&mut followed, turn, &vitals);
            let hash = codec::state_hash(&state);
            assert_eq!(codec::state_hash(&replica.state), hash, "{name} at {}", state.index());
            assert_eq!(replica.index(), state.index());
            held.retain(|_| roll(4) > 0);
            if held.len() + 2 < states::STATES_MAX && roll(2) == 0 {
                held.push((replica, hash));
            }
            most_held = most_held.max(held.len());
            for (replica, hash) in &held {
                assert_eq!(codec::state_hash(&replica.state), *hash, "what is held does not change");
            }
        }
        followed.finish();
    }
    assert!(most_held > 2, "readers held {most_held} at once");
}

#[test]
fn readers_that_come_and_go_cost_two_states_and_not_a_copy_for_each_turn() {
    let (mut followed, latest, vitals) = started();
    let mut events = read("journal-v1-rules.jsonl").into_iter();
    let mut reader = latest.get();
    for _ in 0..40 {
        tell(&mut followed, events.by_ref().take(3).collect(), &vitals);
        // One reader goes when the next has come.
        reader = latest.get();
    }
    assert_eq!(reader.index(), 120);
    assert_eq!(reader.progress.copies.load(Ordering::Relaxed), 1);
    assert_eq!(reader.progress.behind(), 0);
}

#[test]
fn nothing_is_copied_while_nobody_reads_or_while_nothing_happens() {
    let (mut followed, latest, vitals) = started();
    let progress = Arc::clone(&latest.get().progress);
    let mut events = read("journal-v1-rules.jsonl").into_iter();
    for _ in 0..40 {
        let turn = CommittedTurn::new(events.by_ref().take(3).collect(), None, vitals.clone(), Vec::new());
        followed.hand_over(turn).unwrap();
    }
    let reader = tell(&mut followed, Vec::new(), &vitals);
    for _ in 0..40 {
        let next = tell(&mut followed, Vec::new(), &vitals);
        assert!(Arc::ptr_eq(&next.state, &reader.state), "only time has passed");
    }
    assert_eq!(reader.index(), 120);
    assert_eq!(progress.copies.load(Ordering::Relaxed), 0);
}

/// States that readers had let go were kept until others were needed, however many they were.
#[test]
fn of_the_states_that_readers_let_go_one_is_kept() {
    let (mut followed, _, vitals) = started();
    let mut events = read("journal-v1-rules.jsonl").into_iter();
    let mut next = || events.by_ref().take(3).collect::<Vec<Event>>();
    let mut held: Vec<Arc<Replica>> = Vec::new();
    for _ in 0..4 {
        held.push(tell(&mut followed, next(), &vitals));
    }
    assert_eq!(held_copies(&held), 3);
    held.clear();
    // The follower tidies up when it has delivered, so before it publishes the next turn.
    tell(&mut followed, next(), &vitals);
    held.push(tell(&mut followed, next(), &vitals));
    held.push(tell(&mut followed, next(), &vitals));
    assert_eq!(held_copies(&held), 3, "the one that was kept");
    held.push(tell(&mut followed, next(), &vitals));
    assert_eq!(held_copies(&held), 4, "there is no second one");
}

fn held_copies(held: &[Arc<Replica>]) -> u64 {
    held[0].progress.copies.load(Ordering::Relaxed)
}

/// Nothing bounded what a desk decided for readers that saw none of it.
#[test]
fn a_desk_waits_for_a_follower_that_is_too_far_behind() {
    let first = first();
    let (vitals, progress) = (first.vitals.clone(), Arc::clone(&first.progress));
    let empty = first.next(Arc::default(), Arc::default(), vitals.clone());
    empty.progress.committed.store(0, Ordering::Relaxed);
    let (mut followed, latest, _) = start_with(empty, Prices::default(), 2);
    let mut events = read("journal-v1-rules.jsonl").into_iter();
    let mut held: Vec<Arc<Replica>> = Vec::new();
    while held.len() < states::STATES_MAX {
        held.push(tell(&mut followed, events.by_ref().take(1).collect(), &vitals));
    }
    let (handed_over, count) = sync_channel(100);
    let desk = std::thread::spawn(move || {
        for event in events.take(50) {
            let answer: Delivery = Box::new(|_| ());
            followed.hand_over(CommittedTurn::new(vec![event], None, vitals.clone(), vec![answer])).unwrap();
            handed_over.send(()).unwrap();
        }
        followed.finish();
    });
    // One waits for a state to be published in, two for the follower; the next one waits for its place.
    let not_long = Duration::from_millis(200);
    let mut accepted = 0;
    while count.recv_timeout(not_long).is_ok() {
        accepted += 1;
    }
    assert!(accepted <= 3, "{accepted} turns wait");
    held.clear();
    desk.join().unwrap();
    assert_eq!(accepted + count.iter().count(), 50);
    assert_eq!((latest.get().index(), progress.behind()), (58, 0));
}

/// All states are held: the next one waits, what was handed over is kept, and how much that is can be told.
#[test]
fn a_follower_that_cannot_go_on_says_how_far_it_is_behind_and_catches_up() {
    let (mut followed, _, vitals) = started();
    let mut events = read("journal-v1-rules.jsonl").into_iter();
    let mut next = || events.by_ref().take(3).collect::<Vec<Event>>();
    let mut held: Vec<Arc<Replica>> = Vec::new();
    while held.len() < states::STATES_MAX {
        held.push(tell(&mut followed, next(), &vitals));
    }
    for _ in 0..5 {
        let turn = CommittedTurn::new(next(), None, vitals.clone(), Vec::new());
        followed.hand_over(turn).unwrap();
    }
    let progress = Arc::clone(&held[0].progress);
    let behind = progress.behind();
    held.clear();
    let caught_up = tell(&mut followed, Vec::new(), &vitals);
    assert_eq!(behind, 15);
    assert_eq!((caught_up.progress.behind(), caught_up.index()), (0, 39));
}
