//! Why a job waits, and why a request was refused.

use wharf_engine::answer::verdict::Reason;
use wharf_engine::model::need::SharingRefusal;
use wharf_engine::model::rejection::{BookingFault, Rejection};
use wharf_engine::model::shortfall::{Quantity, Shortfall};
use wharf_engine::state::State;
use wharf_engine::units::{BookingId, Timestamp};

use super::{Transcript, span_text};

impl Transcript {
    pub(super) fn reason(&self, name: &str, reason: Reason, state: &State) -> String {
        let token = reason.token();
        let groups = || self.jobs.values().find(|known| known.name == name).map(|known| &known.groups);
        match reason {
            Reason::BackingOff { until } => format!("{token} until {}", span_text(until - self.start)),
            Reason::StartRefused { tries, node, retry_at } => {
                let at = span_text(retry_at - self.start);
                format!("{token} by {}, try {tries}, again at {at}", self.node(node))
            }
            Reason::Short(shortfall) => {
                let group = shortfall.group.and_then(|at| groups()?.get(at));
                shortage(token, shortfall, group, state)
            }
            Reason::Sharing(refused) => format!("{token} ({})", sharing(refused)),
            Reason::Fixed { tenant } => format!("{token} ({})", state.tenants.path(tenant)),
            Reason::Reserved { start, .. } => format!("{token} until {}", span_text(start - self.start)),
            Reason::Window { booking, from } | Reason::Booked { booking, from } => {
                self.window_reason(token, booking, from, state)
            }
            Reason::Downtime { from } => format!("{token} from {}", span_text(from - self.start)),
            Reason::LandingRoom { kept } => format!("{token} ({kept} kept)"),
            Reason::Running
            | Reason::Held { .. }
            | Reason::Starting
            | Reason::Repairing
            | Reason::Leaving
            | Reason::Startable
            | Reason::Earmarked => token.to_owned(),
            Reason::Dependency => {
                let job = state.jobs.iter().map(|(_, job)| job).find(|job| job.spec.name == name);
                let after = job.map(|job| job.spec.after.as_slice()).unwrap_or_default();
                let names = after.iter().map(|on| on.name.rsplit('/').next().unwrap_or_default());
                format!("{token} ({})", names.collect::<Vec<_>>().join(", "))
            }
            Reason::ArrayTurn { at_most } => format!("{token} ({at_most} at a time)"),
        }
    }

    fn window_reason(&self, token: &str, booking: BookingId, from: Timestamp, state: &State) -> String {
        let name = state.bookings.get(booking).map_or("?", |known| known.spec.name.as_str());
        format!("{token} {name}, from {}", span_text(from - self.start))
    }

    /// Why a request was refused.
    pub(in crate::testing::scenario) fn rejection(&self, rejection: &Rejection, state: &State) -> String {
        match rejection {
            Rejection::BookingRefused { fault, nearest } => {
                let at = |at: &Timestamp| format!("; possible from {}", span_text(*at - self.start));
                format!("{}{}", fault_text(*fault, state), nearest.as_ref().map(at).unwrap_or_default())
            }
            Rejection::BookingNameInUse { name } => format!("BookingNameInUse {name}"),
            Rejection::NoSuchBooking { name } => format!("NoSuchBooking {name}"),
            Rejection::NotOfBooking { name, why } => format!("NotOfBooking {name}, {why:?}"),
            Rejection::Never { shortfall, group } => {
                let where_ = format!("{}:", shortfall.stage.into_str());
                format!("Never, {}", shortage(&where_, *shortfall, group.as_ref(), state))
            }
            Rejection::UnknownTenant { path } => format!("UnknownTenant {path}"),
            Rejection::TenantHasChildren { path, .. } => format!("TenantHasChildren {path}"),
            Rejection::NameInUse { .. } => "NameInUse".to_owned(),
            Rejection::ArrayNameInUse { name } => format!("ArrayNameInUse {name}"),
            Rejection::UidInUse { .. } => "UidInUse".to_owned(),
            Rejection::UidEnded => "UidEnded".to_owned(),
            Rejection::TrustNotAllowed { domain, .. } => format!("TrustNotAllowed {domain}"),
            Rejection::SharingRefused(refused) => format!("SharingRefused, {}", sharing(*refused)),
            Rejection::BadSpec(fault) => format!("BadSpec {fault:?}"),
            Rejection::UnknownLevel { level, .. } => format!("UnknownLevel {level}"),
            Rejection::UnknownSelector { source } => format!("UnknownSelector {source}"),
            Rejection::QueueFull { limit, .. } => format!("QueueFull, {limit} wait"),
            Rejection::JobTooLarge { limit, .. } => format!("JobTooLarge, at most {limit} bytes"),
            Rejection::BytesFull { limit, .. } => format!("BytesFull, at most {limit} bytes"),
            Rejection::NoSuchNode { name } => format!("NoSuchNode {name}"),
            Rejection::DependencyNotLive { .. } => "DependencyNotLive".to_owned(),
            Rejection::TooManyDependencies { max, .. } => format!("TooManyDependencies, at most {max}"),
            Rejection::TooManyLinks { max, .. } => format!("TooManyLinks, at most {max}"),
            Rejection::BadArray { max, .. } => format!("BadArray, at most {max}"),
            Rejection::BadDowntime { fault } => format!("BadDowntime {fault:?}"),
            Rejection::DowntimeNameInUse { name } => format!("DowntimeNameInUse {name}"),
            Rejection::NoSuchDowntime { name } => format!("NoSuchDowntime {name}"),
            Rejection::NoSuchJob => "NoSuchJob".to_owned(),
            Rejection::NotRunning => "NotRunning".to_owned(),
            Rejection::LimitAboveMax { max, .. } => format!("LimitAboveMax, at most {}", span_text(*max)),
            Rejection::NotAService => "NotAService".to_owned(),
            Rejection::NoneToSpare { min } => format!("NoneToSpare, at least {min}"),
            Rejection::ReplicasOutOfRange { min, max, .. } => format!("ReplicasOutOfRange, {min} to {max}"),
            Rejection::NoTimeLimit => "NoTimeLimit".to_owned(),
            Rejection::LimitNotLonger { limit, .. } => format!("LimitNotLonger than {}", span_text(*limit)),
            Rejection::Ending => "Ending".to_owned(),
            Rejection::NotPreemptible => "NotPreemptible".to_owned(),
            Rejection::Gap { .. } => "Gap".to_owned(),
            Rejection::Stale => "Stale".to_owned(),
            Rejection::BadPrices => "BadPrices".to_owned(),
            Rejection::NothingToDo => "NothingToDo".to_owned(),
        }
    }
}

fn shortage(token: &str, shortfall: Shortfall, group: Option<&String>, state: &State) -> String {
    let Shortfall { stage: _, need, have, tenant, group: _, beside } = shortfall;
    let whose = tenant.map(|tenant| format!(" ({})", state.tenants.path(tenant))).unwrap_or_default();
    let of = group.map(|name| format!(" for {name}")).unwrap_or_default();
    let beside =
        beside.map(|beside| format!(", {} each {} of {}", beside.what.into_str(), beside.each, beside.most));
    let beside = beside.unwrap_or_default();
    format!("{token} need {} have {}{of}{whose}{beside}", quantity(need), quantity(have))
}

fn quantity(quantity: Quantity) -> String {
    match quantity {
        Quantity::Gpus(units) => units.to_string(),
        Quantity::Tasks(1) => "1 task".to_owned(),
        Quantity::Tasks(count) => format!("{count} tasks"),
    }
}

fn sharing(SharingRefusal { mode, tax, tax_max }: SharingRefusal) -> String {
    format!("{} costs {tax}, at most {tax_max} of 1000", mode.into_str())
}

fn fault_text(fault: BookingFault, state: &State) -> String {
    match fault {
        BookingFault::OperatorsOnly => "OperatorsOnly".to_owned(),
        BookingFault::NotAnOperator => "NotAnOperator".to_owned(),
        BookingFault::WholeGpusOnly => "WholeGpusOnly".to_owned(),
        BookingFault::TooLate { lead } => format!("TooLate, {} before it begins", span_text(lead)),
        BookingFault::Span { max } => format!("Span, at most {}", span_text(max)),
        BookingFault::TooFarAhead { max } => format!("TooFarAhead, at most {}", span_text(max)),
        BookingFault::TooMany { max } => format!("TooMany, at most {max}"),
        BookingFault::BeyondGuarantee { tenant, need, have } => {
            format!("BeyondGuarantee ({}) need {need} have {have}", state.tenants.path(tenant))
        }
        BookingFault::BeyondLimit { tenant } => format!("BeyondLimit ({})", state.tenants.path(tenant)),
        BookingFault::TakesFromGuarantees { need, have } => {
            format!("TakesFromGuarantees need {need} have {have}")
        }
        BookingFault::NoRoom => "NoRoom".to_owned(),
    }
}
