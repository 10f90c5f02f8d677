//! Query parameters. Each endpoint names those that it takes; a request with any other is refused, because a reader
//! would take a whole list for a filtered one.

use std::ops::RangeInclusive;

use axum::extract::{FromRequestParts, MatchedPath, Query, Request};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use strum::VariantArray;
use wharf_api::file::nearest;
use wharf_api::v1::{Code, Problem};

use super::Refused;

/// What reads take, by path. Everything else takes nothing.
const TAKEN: [(&str, &[&str]); 8] = [
    ("/v1/jobs", &["tenant", "state", "submitted_by", "labels", "limit", "continue"]),
    ("/v1/nodes", &["limit", "continue"]),
    ("/v1/gpus", &["limit", "continue"]),
    ("/v1/events", &["since", "term", "limit", "wait"]),
    ("/v1/ended", &["tenant", "state", "name", "submitted_by", "labels", "since_ms", "limit", "before"]),
    ("/v1/usage", &["since", "until", "by", "tenant"]),
    ("/v1/evictions", &["tenant", "job", "limit"]),
    ("/v1/history", &["kind", "tenant", "name", "limit"]),
];

/// Rows of a page unless the caller asks for another number: about half a MiB of jobs.
pub(super) const PAGE_DEFAULT: usize = 500;
/// The most rows of a page.
pub(super) const PAGE_MAX: usize = 1000;

/// What to give as `continue` for the page that begins there.
pub(super) fn token<const N: usize>(at: [u64; N]) -> String {
    at.map(|number| format!("{number:x}")).join("-")
}

/// The parameters of a request, each at most once.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

/// Refuses a request with a parameter that its endpoint does not take, before anything is done for it.
pub(super) async fn check(path: MatchedPath, request: Request, next: Next) -> Result<Response, Refused> {
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    let known = TAKEN.iter().find(|(taken, _)| reads && *taken == path.as_str());
    let allowed = known.map_or(&[][..], |(_, allowed)| allowed);
    let (parts, body) = request.into_parts();
    let Params(given) = read(&parts)?;
    for (at, (name, _)) in given.iter().enumerate() {
        if !allowed.contains(&name.as_str()) {
            return Err(unknown(name, allowed).into());
        }
        if given[..at].iter().any(|(before, _)| before == name) {
            return Err(Problem::new(Code::BadRequest, format!("{name} is given more than once"))
                .hint("give it once")
                .into());
        }
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}

fn unknown(name: &str, allowed: &[&str]) -> Problem {
    let problem = Problem::new(Code::BadRequest, format!("there is no query parameter {name:?} here"));
    let all = if allowed.is_empty() { "this takes none".to_owned() } else { allowed.join(", ") };
    match nearest(name, allowed) {
        Some(near) => problem.hint(format!("did you mean {near}? Allowed here: {all}")),
        None => problem.hint(format!("allowed here: {all}")),
    }
}

fn read(parts: &Parts) -> Result<Params, Problem> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
    let unreadable = |_| {
        Problem::new(Code::BadRequest, "the query of the URL cannot be read")
            .hint("write name=value&name=value, with other characters than letters and digits as %XX")
    };
    pairs.map(|Query(pairs)| Params(pairs)).map_err(unreadable)
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        Ok(read(parts)?)
    }
}

impl Params {
    /// The value of a parameter, if it is there.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// One of a few words.
    pub(super) fn one_of<T: VariantArray + Copy + Into<&'static str>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(given) = self.text(name) else { return Ok(None) };
        let found = T::VARIANTS.iter().copied().find(|&known| known.into() == given);
        let wrong = || {
            let words: Vec<&str> = T::VARIANTS.iter().map(|&known| known.into()).collect();
            let problem = Problem::new(Code::BadRequest, format!("{name}: {given:?} is none of its values"));
            let all = words.join(", ");
            match nearest(given, &words) {
                Some(near) => problem.hint(format!("did you mean {near}? Allowed here: {all}")),
                None => problem.hint(format!("allowed here: {all}")),
            }
        };
        found.map(Some).ok_or_else(wrong)
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let number = |given: &str| {
            given.parse().map_err(|_| {
                Problem::new(Code::BadRequest, format!("{name}: {given:?} is not a whole number"))
                    .hint("give digits alone, or leave it out")
            })
        };
        self.text(name).map(number).transpose()
    }

    /// Where the page before ended, in the numbers that [`token`] was made of.
    pub(super) fn continued<const N: usize>(&self) -> Result<Option<[u64; N]>, Problem> {
        let Some(given) = self.text("continue") else { return Ok(None) };
        let numbers = given.split('-').map(|number| u64::from_str_radix(number, 16).ok());
        let numbers = numbers.collect::<Option<Vec<u64>>>().and_then(|numbers| numbers.try_into().ok());
        let wrong = || {
            Problem::new(Code::BadRequest, format!("continue: {given:?} is no token of this list"))
                .hint("give the token of the page before, or leave it out to begin again")
        };
        numbers.map(Some).ok_or_else(wrong)
    }

    /// How many rows are asked for, in a range, or the `default`.
    pub(super) fn limit(&self, default: usize, range: RangeInclusive<usize>) -> Result<usize, Problem> {
        let Some(given) = self.text("limit") else { return Ok(default) };
        let limit = given.parse().ok().filter(|limit| range.contains(limit));
        limit.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Problem::new(Code::BadRequest, format!("limit: {given:?} is not a number from {least} to {most}"))
                .hint(format!("leave it out for {default}"))
        })
    }
}
