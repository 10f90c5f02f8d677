//! Who sends a request: the one place in which the server resolves an actor.
//!
//! There is no authentication yet. What can be known is that somebody reached the API and what they say of themselves, so
//! a name is a claim, and whoever reaches the API has every role. A checked identity will change this file and nothing else.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use wharf_api::v1::{Code, Problem};
use wharf_engine::model::actor::{Actor, Role, Source, Subject};

use super::Refused;

/// Names the user that sends a request.
const USER: &str = "wharf-user";
/// Names somebody else for whom that user acts.
const ON_BEHALF_OF: &str = "wharf-on-behalf-of";
const USER_BYTES_MAX: usize = 64;

/// Who sends a request that changes something.
#[derive(Debug)]
pub(super) struct Caller(pub(super) Actor);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        Ok(Self(resolve(&parts.headers)?))
    }
}

fn resolve(headers: &HeaderMap) -> Result<Actor, Problem> {
    let subject = named(headers, USER)?.map_or(Subject::Unnamed, Subject::Claimed);
    let on_behalf_of = named(headers, ON_BEHALF_OF)?;
    Ok(Actor { subject, on_behalf_of, roles: vec![Role::Operator], ..Actor::of(Source::Http) })
}

fn named(headers: &HeaderMap, header: &str) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    let name = value.to_str().ok().filter(|name| is_user(name));
    let name = name.ok_or_else(|| {
        let what = format!("{header} has 1 to {USER_BYTES_MAX} letters, digits or signs of .-_@+");
        Problem::new(Code::BadRequest, what).hint("leave it out, or set WHARF_USER to a plain name")
    })?;
    Ok(Some(name.to_owned()))
}

fn is_user(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@+".contains(&byte);
    (1..=USER_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &str)]) -> Result<Actor, String> {
        let header = |&(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        resolve(&pairs.iter().map(header).collect()).map_err(|problem| problem.detail)
    }

    #[test]
    fn a_name_that_nobody_checked_is_a_claim() {
        let ada = of(&[("wharf-user", "ada@lab"), ("wharf-on-behalf-of", "eve")]).unwrap();
        assert_eq!(ada.subject, Subject::Claimed("ada@lab".to_owned()));
        assert_eq!((ada.source, ada.on_behalf_of.as_deref()), (Source::Http, Some("eve")));
        assert_eq!(of(&[]).unwrap().subject, Subject::Unnamed);
        assert_eq!(of(&[]).unwrap().called(), "anonymous");
    }

    #[test]
    fn a_name_that_is_no_plain_word_is_refused() {
        for wrong in ["", "a b", "a/b", &"x".repeat(65)] {
            let told = of(&[("wharf-user", wrong)]).unwrap_err();
            assert!(told.starts_with("wharf-user has 1 to 64 letters"), "{told}");
        }
        assert!(of(&[("wharf-on-behalf-of", "a b")]).is_err());
    }
}
