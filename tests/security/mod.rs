//! Hostile and broken input: refused with a code, nothing half-stored, the process unharmed.

mod body;
mod identity;
mod subjects;
