//! Runtimes: what the operator's configuration allows local kinds to start.

use crate::{Code, Rejection};
use signalbox_events::workload::Category;
use std::collections::BTreeMap;

/// A runtime as far as validation needs it: users fill declared parameters, there is no free command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The half of the list that it can serve.
    pub category: Category,
    /// Declared parameters.
    pub parameters: BTreeMap<String, Parameter>,
}

/// One declared parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The value where the user gives none; `None` makes the parameter required.
    pub default: Option<String>,
    /// The values allowed; empty allows any printable text without a leading dash.
    pub values: Vec<String>,
}

/// Runtimes by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog(pub BTreeMap<String, Runtime>);

impl Catalog {
    /// Checks a runtime's name and the parameters given for it.
    pub(super) fn check(&self, path: &str, name: &str, given: &BTreeMap<String, String>, category: Category) -> Result<(), Rejection> {
        let runtime = self.0.get(name).filter(|runtime| runtime.category == category).ok_or_else(|| {
            let known: Vec<_> = self.0.iter().filter(|(_, runtime)| runtime.category == category).map(|(name, _)| name.as_str()).collect();
            Rejection {
                code: Code::UnknownRuntime,
                detail: format!("no runtime of this name serves a {category}; configured: {}", known.join(", ")),
                field: Some(format!("{path}.runtime")),
            }
        })?;
        for (key, value) in given {
            let at = format!("{path}.parameters.{key}");
            let Some(parameter) = runtime.parameters.get(key) else {
                return Err(Rejection { code: Code::UnknownField, detail: format!("the runtime declares no parameter `{key}`"), field: Some(at) });
            };
            parameter.check(&at, value)?;
        }
        match runtime.parameters.iter().find(|(key, parameter)| parameter.default.is_none() && !given.contains_key(*key)) {
            Some((key, _)) => Err(Rejection::missing(format!("{path}.parameters.{key}"))),
            None => Ok(()),
        }
    }
}

impl Parameter {
    fn check(&self, path: &str, value: &str) -> Result<(), Rejection> {
        if !self.values.is_empty() {
            let allowed = self.values.iter().any(|allowed| allowed == value);
            return if allowed { Ok(()) } else { Err(Rejection::field(path, format!("must be one of {}", self.values.join(", ")))) };
        }
        // A leading dash would be read as an option by the program that is started.
        if value.starts_with('-') || value.chars().count() > 1024 || value.chars().any(char::is_control) {
            return Err(Rejection::field(path, "must be printable, at most 1,024 characters, and not begin with a dash"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn catalog() -> Catalog {
        let model = Parameter { default: None, values: vec![] };
        let delay = Parameter { default: Some("0".to_owned()), values: vec!["0".to_owned(), "20".to_owned()] };
        let parameters = BTreeMap::from([("model".to_owned(), model), ("delay".to_owned(), delay)]);
        Catalog(BTreeMap::from([
            ("server".to_owned(), Runtime { category: Category::Deployment, parameters: parameters.clone() }),
            ("batch".to_owned(), Runtime { category: Category::Job, parameters }),
        ]))
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_runtime_is_configured_and_of_the_right_half() {
        let check = |name| catalog().check("spec", name, &given(&[("model", "m")]), Category::Deployment);
        assert_eq!(check("server"), Ok(()));
        for name in ["batch", "nothing", "", "../server"] {
            let rejection = check(name).unwrap_err();
            assert_eq!((rejection.code, rejection.field.as_deref()), (Code::UnknownRuntime, Some("spec.runtime")));
        }
    }

    #[test]
    fn parameters_are_declared_allowed_and_complete() {
        let check = |pairs: &[(&str, &str)]| {
            catalog().check("spec", "server", &given(pairs), Category::Deployment).map_err(|rejection| (rejection.code, rejection.field.unwrap()))
        };
        assert_eq!(check(&[("model", "m"), ("delay", "20")]), Ok(()));
        assert_eq!(check(&[]), Err((Code::MissingField, "spec.parameters.model".to_owned())));
        assert_eq!(check(&[("model", "m"), ("x", "1")]), Err((Code::UnknownField, "spec.parameters.x".to_owned())));
        assert_eq!(check(&[("model", "m"), ("delay", "21")]), Err((Code::InvalidField, "spec.parameters.delay".to_owned())));
        for bad in ["--flag", "a\0b", &"x".repeat(1025)] {
            assert_eq!(check(&[("model", bad)]), Err((Code::InvalidField, "spec.parameters.model".to_owned())));
        }
    }
}
