//! The log is what it was, or the auditor names the first bad place.

mod rot;
mod tamper;
