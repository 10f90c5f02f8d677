//! Why a call has no answer, and what the command line exits with for that.

use std::io::ErrorKind;

use super::SERVER_DEFAULT;
use crate::v1::Problem;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address makes no sense.
    #[error(
        "{server:?} is no address of a control plane: {what}; write http://HOST:PORT, such as {SERVER_DEFAULT}"
    )]
    Address {
        /// What was given.
        server: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Nobody answers.
    #[error(
        "no answer from {server}: {}; start a control plane with `wharf up`, or name another with --server",
        why_silent(source)
    )]
    Unreachable {
        /// Who was asked.
        server: String,
        /// What happened.
        source: Box<ureq::Error>,
    },
    /// The answer is no.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// Something answers, but not a control plane that we understand.
    #[error("{server} does not answer like a control plane of this version: {what}")]
    Protocol {
        /// Who was asked.
        server: String,
        /// What was wrong with the answer.
        what: String,
    },
}

impl ClientError {
    /// What the command line exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Address { .. } => 64,
            Self::Unreachable { .. } | Self::Protocol { .. } => 69,
            Self::Problem(problem) => problem.code.exit_code(),
        }
    }
}

/// Why nobody answers, without the words of those who carried the question.
pub fn why_silent(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::HostNotFound => "there is no such host",
        ureq::Error::Timeout(_) => "it took too long",
        ureq::Error::Io(fault) => match fault.kind() {
            ErrorKind::ConnectionRefused => "nothing listens there",
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "it took too long",
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => "the connection was closed before the answer came",
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
                "there is no way to that address"
            }
            _ => "the connection failed",
        },
        _ => "the connection failed",
    }
}
