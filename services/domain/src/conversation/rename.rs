//! Gives a conversation another title.

use super::{Existing, check_title};
use crate::Rejection;
use signalbox_events::Text;
use signalbox_events::conversation::{Event, Renamed};

/// Rename.
#[derive(Debug, Clone)]
pub struct Rename {
    /// The new title, 1 to 256 characters.
    pub title: Text,
}

/// The rules hold no text, so they cannot tell whether the title is the same: each rename is stated.
pub(super) fn decide(_: &Existing, command: &Rename) -> Result<Option<Event>, Rejection> {
    check_title("title", &command.title)?;
    Ok(Some(Renamed { title: command.title.clone() }.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::conversation::Conversation;
    use crate::conversation::fixtures::made;
    use crate::given::given;
    use signalbox_events::conversation::Deleted;

    #[test]
    fn a_title_is_bounded() {
        made().when(Rename { title: "T".into() }).then(Renamed { title: "T".into() });
        for bad in [String::new(), " ".to_owned(), "x".repeat(257), "a\nb".to_owned()] {
            made().when(Rename { title: bad.into() }).refused(Code::InvalidField);
        }
        given::<Conversation>().when(Rename { title: "T".into() }).refused(Code::NotFound);
        made().event(Deleted {}).when(Rename { title: "T".into() }).refused(Code::NotFound);
    }
}
