//! What is told of jobs that the world owns.

use wharf_engine::model::action::Notice;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::state::owned::OwnedEvent;
use wharf_engine::units::Uid;

use super::Transcript;

impl Transcript {
    /// A job is known by its name before it is taken.
    pub(in super::super) fn call(&mut self, uid: Uid, name: &str) {
        self.names.insert(uid, name.to_owned());
    }

    pub(super) fn owned(&self, event: OwnedEvent) -> Option<String> {
        let name = |uid: Uid| self.names.get(&uid).map_or("?", String::as_str);
        match event {
            OwnedEvent::Claimed { uid, .. } => Some(format!("{} is the world's", name(uid))),
            OwnedEvent::Noted { uid, notice, .. } => match notice {
                Notice::Rejected { why } => Some(format!("{} is not taken: {}", name(uid), word(&why))),
                Notice::ChangeRefused { why } => {
                    let why = why.map_or_else(|| "it has its places".to_owned(), |why| word(&why));
                    Some(format!("{} is not changed: {why}", name(uid)))
                }
                Notice::Ended { .. } => None,
            },
            OwnedEvent::Withdrawn { uid, .. } => Some(format!("{} is as its owner has it", name(uid))),
            OwnedEvent::Gone { uid, .. } => Some(format!("{} is gone from the world", name(uid))),
        }
    }
}

/// The name of a rejection, without its numbers.
fn word(why: &Rejection) -> String {
    let all = format!("{why:?}");
    all.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
