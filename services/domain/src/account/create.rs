//! Creates an account.

use super::{Command, State, plain_name};
use crate::{Code, Rejection};
use signalbox_events::account::{Created, Event};

/// Create the account.
#[derive(Debug, Clone)]
pub struct Create {
    /// The name that people see, 1 to 128 characters.
    pub name: String,
}

impl From<Create> for Command {
    fn from(command: Create) -> Self {
        Self::Create(command)
    }
}

pub(super) fn decide(state: &State, command: &Create) -> Result<Option<Event>, Rejection> {
    plain_name("name", &command.name, 128)?;
    match &state.name {
        None => Ok(Some(Created { name: command.name.clone() }.into())),
        Some(name) if *name == command.name => Ok(None),
        Some(_) => Err(Rejection::new(Code::AlreadyExists, "the account exists under another name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::given::given;

    fn create(name: &str) -> Create {
        Create { name: name.to_owned() }
    }

    #[test]
    fn an_account_is_created_once() {
        given::<Account>().when(create("a")).then(Created { name: "a".to_owned() });
        let made = given::<Account>().event(Created { name: "a".to_owned() });
        made.when(create("a")).nothing();
        made.when(create("b")).refused(Code::AlreadyExists);
    }

    #[test]
    fn a_name_is_bounded_and_printable() {
        for bad in ["", "  ", "a\0b", "a\nb", &"x".repeat(129)] {
            let rejection = given::<Account>().when(create(bad)).refused(Code::InvalidField);
            assert_eq!(rejection.field.as_deref(), Some("name"));
        }
    }
}
