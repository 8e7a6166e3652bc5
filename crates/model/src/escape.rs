//! Text as a part of a path or a query: it must not reach beyond its place.
//!
//! Deliberately absent: what the text means. Whoever takes a text apart says what may be in it.

/// As a part of a path or query. Only letters, digits and `-._~` stand for themselves.
pub fn escaped(text: &str) -> String {
    let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    escaped
}

/// What a part of a query says; `None` where it is not well written, or not text.
pub fn unescaped(part: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => (digit(rest.next()?)? << 4) | digit(rest.next()?)?,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_one_word_and_reads_the_same() {
        for text in ["", "a b", "../..", "%2F", "a&b=c;d?e#f", "ünïcode", "line\nbreak\0", "+", "/"] {
            let word = escaped(text);
            assert!(!word.contains(['/', '&', '=', '?', '#', ';', '+', ' ', '\n', '\0']), "{word}");
            assert_eq!(unescaped(&word).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_written_badly_is_not_read() {
        for part in ["%", "%2", "%zz", "%+1", "%ff", "a%c3"] {
            assert_eq!(unescaped(part), None, "{part}");
        }
        assert_eq!(unescaped("a+b%20c").as_deref(), Some("a b c"));
    }
}
