//! Rust with its comments and literals blanked out.
//!
//! What remains is as long as before, byte for byte and line for line, so that positions stay valid. A rule can then look for
//! a word or count braces without being fooled by `"}"` or by a comment that mentions `unwrap`.

/// The text with every byte of a comment, string or character literal replaced by a space. Line ends stay.
pub(super) fn mask(text: &str) -> String {
    let mut masked = text.as_bytes().to_vec();
    let mut at = 0;
    while at < masked.len() {
        if let Some(end) = opaque_end(text, at) {
            for byte in &mut masked[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    // Literals are blanked whole, so no character is cut in two.
    String::from_utf8_lossy(&masked).into_owned()
}

pub(super) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Where the comment or literal ends that begins at `at`; `None` if none begins there.
fn opaque_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    let length = match rest {
        [b'/', b'/', ..] => position(rest, b"\n").unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => quoted_length(rest, b'"'),
        [b'\'', ..] => character_length(text.get(at..)?)?,
        [b'r', ..] if begins_literal(text.as_bytes(), at) => raw_string_length(rest)?,
        _ => return None,
    };
    Some(at + length)
}

/// True if the `r` at `at` can begin a raw string: it is not the end of a word, other than of `br` and `cr`.
fn begins_literal(text: &[u8], at: usize) -> bool {
    let ends_word = |at: usize| at > 0 && is_word_byte(text[at - 1]);
    !ends_word(at) || (matches!(text[at - 1], b'b' | b'c') && !ends_word(at - 1))
}

/// Block comments nest in Rust.
fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a literal with escapes, its quotes included. Without a closing quote: all that is left.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal, told from a lifetime by its closing quote.
fn character_length(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return Some(quoted_length(rest.as_bytes(), b'\''));
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

/// `r"…"` or `r#"…"#` with any number of `#`; `None` for a raw identifier such as `r#type`.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    Some(position(body, &close).map_or(rest.len(), |at| open + 1 + at + close.len()))
}

fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::mask;

    /// Masked text with runs of spaces made one, for short expectations.
    fn squeezed(text: &str) -> String {
        let masked = mask(text);
        assert_eq!(masked.len(), text.len(), "positions must stay valid");
        assert_eq!(masked.lines().count(), text.lines().count());
        masked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked_and_may_nest() {
        assert_eq!(squeezed("a // } b\nc /* { /* x */ } */ d"), "a c d");
    }

    #[test]
    fn strings_are_blanked_with_their_escapes() {
        assert_eq!(squeezed(r#"a("}\"{", b"x\\", c"y") b"#), "a( , b , c ) b");
    }

    #[test]
    fn raw_strings_are_blanked_up_to_their_own_end() {
        assert_eq!(squeezed("a(r#\"x \" y\"#, br\"\\\", cr##\"\"#\"##) b"), "a( , b , c ) b");
    }

    #[test]
    fn raw_identifiers_and_words_that_end_in_r_stay() {
        assert_eq!(squeezed("r#type; for\"x\"y"), "r#type; for y");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_stay() {
        assert_eq!(
            squeezed(r"f::<'a>('{', '\'', '\u{7d}', b'}', 'é') 'static"),
            "f::<'a>( , , , b , ) 'static"
        );
    }

    #[test]
    fn unfinished_literals_reach_the_end() {
        assert_eq!(squeezed("a \"b }"), "a");
        assert_eq!(squeezed("a /* b }"), "a");
        assert_eq!(squeezed("a r#\"b }\""), "a");
        assert_eq!(squeezed("a \"b\\"), "a");
    }
}
