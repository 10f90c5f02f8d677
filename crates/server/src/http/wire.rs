//! A connection as the HTTP implementation sees it.
//!
//! A client that does not read its answer is cut off: whatever is to be written must move on at a least rate. And where
//! the HTTP implementation refuses a request by itself, with a status and nothing else, our own words go out in its
//! place.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use wharf_api::v1::{Code, Problem};

/// Within so long …
const WRITE_WINDOW: Duration = Duration::from_secs(20);
/// … so much must have been written while there is something to write. A phone does better.
const WRITE_BYTES_MIN: usize = 16 << 10;

/// A connection.
pub(super) struct Wire {
    stream: TcpStream,
    /// Runs while something waits to be written.
    window: Option<Window>,
    /// What goes out in place of a bare refusal, and how much of it is out.
    words: Option<(Vec<u8>, usize)>,
}

struct Window {
    ends: Pin<Box<Sleep>>,
    written: usize,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, window: None, words: None }
    }

    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let (Poll::Ready(Ok(count)), Some(window)) = (&written, &mut self.window) {
            window.written += count;
        }
        if written.is_ready() {
            return written;
        }
        let window =
            self.window.get_or_insert_with(|| Window { ends: Box::pin(sleep(WRITE_WINDOW)), written: 0 });
        while window.ends.as_mut().poll(cx).is_ready() {
            if window.written < WRITE_BYTES_MIN {
                return Poll::Ready(Err(Error::new(
                    ErrorKind::TimedOut,
                    "the client does not read its answer",
                )));
            }
            window.written = 0;
            window.ends.as_mut().reset(Instant::now() + WRITE_WINDOW);
        }
        Poll::Pending
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let wire = self.get_mut();
        if wire.words.is_none() {
            let Some(words) = in_our_words(bytes) else { return wire.write(cx, bytes) };
            wire.words = Some((words, 0));
        }
        while let Some((words, mut out)) = wire.words.take() {
            if out == words.len() {
                break;
            }
            let written = wire.write(cx, &words[out..]);
            if let Poll::Ready(Ok(count)) = written {
                out += count;
            }
            wire.words = Some((words, out));
            ready!(written)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let wire = self.get_mut();
        wire.window = None;
        Pin::new(&mut wire.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// A whole answer in place of a bare refusal: a head without a body, which none of our own refusals is.
fn in_our_words(head: &[u8]) -> Option<Vec<u8>> {
    if !head.starts_with(b"HTTP/1.") || !head.ends_with(b"\r\n\r\n") {
        return None;
    }
    let text = std::str::from_utf8(head).ok()?;
    let bare = text.lines().any(|line| line.eq_ignore_ascii_case("content-length: 0"));
    let problem = problem(text.get(9..12).filter(|_| bare)?)?;
    let body = serde_json::to_string(&problem).ok()?;
    let (line, _) = text.split_once("\r\n")?;
    let length = body.len();
    let head = format!(
        "{line}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    Some([head, body].concat().into_bytes())
}

fn problem(status: &str) -> Option<Problem> {
    match status {
        "400" => Some(
            Problem::new(Code::BadRequest, "what arrived is no HTTP/1.1 request: its head cannot be read")
                .hint("send METHOD PATH HTTP/1.1 and header fields, each line ended by CRLF; TLS is not spoken here"),
        ),
        "414" => Some(
            Problem::new(Code::UriTooLong, "the URL of a request has at most 65534 bytes")
                .hint("what is long belongs into the body"),
        ),
        "431" => Some(
            Problem::new(
                Code::HeadTooLarge,
                format!("the head of a request has at most 100 fields and {HEAD_BYTES_MAX} bytes"),
            )
            .hint("send fewer or shorter header fields"),
        ),
        _ => None,
    }
}

/// The most bytes of a head; also what is read ahead of a body.
pub(super) const HEAD_BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_without_a_body_gets_our_words() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let ours = String::from_utf8(in_our_words(bare).unwrap()).unwrap();
        assert!(ours.starts_with("HTTP/1.1 431 ") && ours.contains("\"code\":\"head_too_large\""), "{ours}");
        let (head, body) = ours.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{ours}");
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\n\r\n",
            b"\xff\xff\r\n\r\n",
            b"HTTP/1.\r\n\r\n",
        ] {
            assert_eq!(in_our_words(other), None);
        }
    }
}
