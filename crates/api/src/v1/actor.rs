//! Who did something, as the API shows it.

use serde::{Deserialize, Serialize};
use wharf_engine::model::actor::{Actor, Role, Source, Subject};

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorView {
    /// By which way: `http`, `embedded`, `policy_file`, `world` or `engine`.
    pub source: Source,
    /// As they are called; `null` where nobody said.
    pub name: Option<String>,
    /// Whether the name was checked; else it is what the client said.
    pub verified: bool,
    /// As what they may act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// For whom they acted, where that is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
}

impl From<Actor> for ActorView {
    fn from(actor: Actor) -> Self {
        let Actor { source, subject, roles, on_behalf_of } = actor;
        let (name, verified) = match subject {
            Subject::Unnamed => (None, false),
            Subject::Claimed(name) => (Some(name), false),
            Subject::Verified(name) => (Some(name), true),
        };
        Self { source, name, verified, roles, on_behalf_of }
    }
}

impl ActorView {
    /// In words: `ada (unverified)`, `bot (unverified) for ada`, `anonymous`, `engine`.
    pub fn text(&self) -> String {
        let who = match (&self.name, self.verified) {
            (Some(name), true) => name.clone(),
            (Some(name), false) => format!("{name} (unverified)"),
            (None, _) => self.source.into_str().to_owned(),
        };
        match &self.on_behalf_of {
            Some(other) => format!("{who} for {other}"),
            None => who,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_a_claim_from_a_checked_name() {
        let text = |subject, on_behalf_of: Option<&str>| {
            let on_behalf_of = on_behalf_of.map(str::to_owned);
            ActorView::from(Actor { subject, on_behalf_of, ..Actor::of(Source::Http) }).text()
        };
        let ada = || "ada".to_owned();
        assert_eq!(text(Subject::Claimed(ada()), None), "ada (unverified)");
        assert_eq!(text(Subject::Verified(ada()), Some("eve")), "ada for eve");
        assert_eq!(text(Subject::Unnamed, None), "anonymous");
        assert_eq!(ActorView::from(Actor::of(Source::Engine)).text(), "engine");
    }
}
