//! The official clients, unchanged.

mod clients;
