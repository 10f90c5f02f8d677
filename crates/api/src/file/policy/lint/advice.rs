//! What is allowed in a policy and probably not meant: limits that another one hides, and weights that claim nothing.

use wharf_engine::model::policy::{Amount, Quota};

use super::super::quota::Line;
use super::{Finding, Meter, Owed, Page, Severity, Words};

/// What there is to say, whatever the fleet is.
pub(super) fn findings(page: &Page<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for meter in Meter::all(page.book) {
        findings.extend(hidden_limits(page, meter));
    }
    let gpus = Meter::gpus(page.book).into_iter().map(|meter| (meter, Owed::of(page.book, meter)));
    let gpus: Vec<(Meter<'_>, Owed)> = gpus.collect();
    findings.extend(groups(page).into_iter().filter_map(|group| no_weight(page, &group, &gpus)));
    findings
}

/// Limits above the limit of a tenant further up.
fn hidden_limits(page: &Page<'_>, meter: Meter<'_>) -> Vec<Finding> {
    // By tenant: the lowest limit from the top down to it, and whose it is.
    let mut lowest: Vec<Option<(u64, usize)>> = Vec::with_capacity(page.book.lines.len());
    let mut findings = Vec::new();
    for (index, line) in page.book.lines.iter().enumerate() {
        let above = line.parent.and_then(|parent| lowest[parent]);
        let own = match meter.quota(line).limit {
            Amount::Of(limit) => Some((limit, index)),
            Amount::Unlimited => None,
        };
        if let (Some((limit, _)), Some((above, whose))) = (own, above)
            && limit > above
        {
            let words = hidden_limit(line, &page.book.lines[whose], meter, (limit, above));
            let at = meter.pair(line).limit.and_then(|placed| placed.at).or(line.at);
            findings.push(page.finding(Severity::Warning, at, words));
        }
        lowest.push(own.into_iter().chain(above).min());
    }
    findings
}

fn hidden_limit(line: &Line, above: &Line, meter: Meter<'_>, (limit, least): (u64, u64)) -> Words {
    let (path, above) = (&line.path, &above.path);
    let (limit, least) = (meter.number(limit), meter.number(least));
    let unit = match meter {
        Meter::Gpus(model) => model.map_or("GPUs".to_owned(), |model| format!("{model} GPUs")),
        Meter::Cpu => "cores".to_owned(),
        Meter::Memory => "memory".to_owned(),
    };
    Words {
        what: format!("{path} has a limit of {limit} {unit}, {above} above it one of {least}"),
        why: format!("a limit counts for everyone below it too, so {path} stops at {least}"),
        fix: format!("lower {path}'s limit to {least} or raise {above}'s to {limit}"),
    }
}

/// Tenants that share what is left among each other.
struct Group<'a> {
    parent: Option<usize>,
    members: Vec<&'a Line>,
}

fn groups<'a>(page: &Page<'a>) -> Vec<Group<'a>> {
    let lines = &page.book.lines;
    let group = |parent| Group { parent, members: Vec::new() };
    let mut groups: Vec<Group<'a>> =
        std::iter::once(None).chain((0..lines.len()).map(Some)).map(group).collect();
    for line in lines {
        groups[line.parent.map_or(0, |parent| parent + 1)].members.push(line);
    }
    groups.retain(|group| !group.members.is_empty());
    groups
}

/// A group in which nobody has a claim on what is left, although something may be left and somebody may use it.
fn no_weight(page: &Page<'_>, group: &Group<'_>, gpus: &[(Meter<'_>, Owed)]) -> Option<Finding> {
    let Group { parent, members } = group;
    let claims_nothing = members.iter().all(|line| line.weight == 0);
    let is_left = |meter: &Meter<'_>, owed: &Owed| {
        parent
            .is_none_or(|parent| meter.quota(&page.book.lines[parent]).limit > Amount::Of(owed.below[parent]))
    };
    let may_use_more = |meter: &Meter<'_>| members.iter().any(|line| has_room(meter.quota(line)));
    if !claims_nothing || !gpus.iter().any(|(meter, owed)| is_left(meter, owed) && may_use_more(meter)) {
        return None;
    }
    let who = match parent {
        Some(parent) => format!("children of {}", page.book.lines[*parent].path),
        None => "tenants at the top".to_owned(),
    };
    let words = Words {
        what: format!("all {who} have weight 0"),
        why: "what is left after guarantees is shared by weight, and here no tenant has a claim on it when it is contested"
            .to_owned(),
        fix: "give at least one of them a weight above 0, or each a limit equal to its guarantee if none is to have more"
            .to_owned(),
    };
    Some(page.finding(Severity::Warning, members[0].weight_at.or(members[0].at), words))
}

/// Whether a tenant may hold more than it is promised.
fn has_room(quota: Quota) -> bool {
    quota.limit > quota.guaranteed || quota.limit == Amount::Unlimited
}
