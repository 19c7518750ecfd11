//! Server-Sent Events from a model, read from bytes that may be cut anywhere.

/// Largest event that is kept; a longer one is a broken stream.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Collects bytes until an event is whole. Lines end with CR, LF or CRLF.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    begun: bool,
}

/// More bytes than an event may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Parser {
    /// Takes bytes and answers with the data of every event that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    self.end_line(&mut events);
                }
                byte => {
                    self.after_cr = false;
                    self.line.push(*byte);
                }
            }
            if self.line.len() + self.data.len() > MOST_BYTES {
                return Err(TooLong);
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, events: &mut Vec<String>) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                // Whole lines only, so that no character is cut; what is not UTF-8 is replaced.
                events.push(String::from_utf8_lossy(&std::mem::take(&mut self.data)).into_owned());
            }
            return;
        }
        // Comments, ids, names and retry times say nothing to us.
        let Some(value) = line.strip_prefix(b"data").filter(|rest| rest.is_empty() || rest[0] == b':') else { return };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        "\u{feff}: hello\nid: 1\nevent: x\nretry: 5\ndata: {\"a\": \"ä模\u{1f600}\"}\n\ndata: one\ndata: two\n\n: c\n\ndata\n\ndata:[DONE]\n\n";

    fn expected() -> Vec<String> {
        ["{\"a\": \"ä模\u{1f600}\"}", "one\ntwo", "", "[DONE]"].map(str::to_owned).to_vec()
    }

    #[test]
    fn any_split_and_any_line_end_gives_the_same_events() {
        for end in ["\n", "\r\n", "\r"] {
            let text = STREAM.replace('\n', end);
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let mut parser = Parser::default();
                let mut events = parser.feed(&bytes[..cut]).unwrap();
                events.extend(parser.feed(&bytes[cut..]).unwrap());
                assert_eq!(events, expected(), "cut at {cut} with {end:?}");
            }
            let mut parser = Parser::default();
            let events: Vec<String> = bytes.iter().flat_map(|byte| parser.feed(&[*byte]).unwrap()).collect();
            assert_eq!(events, expected());
        }
    }

    #[test]
    fn an_event_without_end_is_bounded() {
        assert_eq!(Parser::default().feed(&vec![b'x'; MOST_BYTES + 1]), Err(TooLong));
    }
}
