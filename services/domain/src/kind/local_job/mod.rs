//! `local-job`: a supervised local process that runs to its end.

use super::Catalog;
use crate::Rejection;
use signalbox_events::workload::Category;
use std::collections::BTreeMap;

pub(super) fn validate(path: &str, runtime: &str, parameters: &BTreeMap<String, String>, catalog: &Catalog) -> Result<(), Rejection> {
    catalog.check(path, runtime, parameters, Category::Job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::kind::runtime::tests::catalog;

    #[test]
    fn a_job_takes_a_job_runtime() {
        let parameters = BTreeMap::from([("model".to_owned(), "m".to_owned())]);
        assert_eq!(validate("spec", "batch", &parameters, &catalog()), Ok(()));
        assert_eq!(validate("spec", "server", &parameters, &catalog()).unwrap_err().code, Code::UnknownRuntime);
    }
}
