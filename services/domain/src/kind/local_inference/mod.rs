//! `local-inference`: a supervised local process that serves an OpenAI-compatible endpoint.

use super::Catalog;
use crate::Rejection;
use signalbox_events::workload::Category;
use std::collections::BTreeMap;

/// Most processes of one workload.
pub const MOST_REPLICAS: u32 = 16;

/// Checks replicas as a count that one machine can bear.
pub fn replicas(path: &str, replicas: u32) -> Result<(), Rejection> {
    if (1..=MOST_REPLICAS).contains(&replicas) {
        Ok(())
    } else {
        Err(Rejection::field(path, format!("must lie within 1 and {MOST_REPLICAS}; to stop a deployment, suspend it")))
    }
}

pub(super) fn validate(path: &str, runtime: &str, parameters: &BTreeMap<String, String>, count: u32, catalog: &Catalog) -> Result<(), Rejection> {
    catalog.check(path, runtime, parameters, Category::Deployment)?;
    replicas(&format!("{path}.replicas"), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::runtime::tests::catalog;

    #[test]
    fn replicas_are_bounded() {
        let parameters = BTreeMap::from([("model".to_owned(), "m".to_owned())]);
        for (count, good) in [(0, false), (1, true), (16, true), (17, false), (u32::MAX, false)] {
            let result = validate("spec", "server", &parameters, count, &catalog());
            assert_eq!(result.is_ok(), good, "{count}");
            if let Err(rejection) = result {
                assert_eq!(rejection.field.as_deref(), Some("spec.replicas"));
            }
        }
    }
}
