//! The product as its users meet it.

mod account;
mod audit;
mod conversation;
mod openai;
mod operation;
mod pool;
mod security;
mod task;
mod upstream;
mod workload;
