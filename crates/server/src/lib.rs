//! The HTTP side of maya: an OpenAI-compatible server over one engine.
//!
//! [`serve`] (or [`Listener::bind`] and [`serve_on`]) takes a [`Chat`], which turns conversations into tokens and tokens
//! into text, and a [`Generate`], which computes tokens. The README of this crate says what is served and how.
#![forbid(unsafe_code)]

mod body;
mod chat;
mod chat_request;
mod config;
mod engine;
mod error;
mod field;
mod host_check;
mod id;
mod job;
mod messages;
mod outcome;
mod queue;
mod response;
mod routes;
mod serve;
mod settings;
mod shutdown;
mod stream;
mod text_request;
mod turn;
mod wire;

pub use chat::Chat;
pub use chat_request::{RefusedRequest, chat_request};
pub use config::Config;
pub use engine::{EngineError, Event, Finish, Generate, ModelInfo, Options, SamplerParams};
pub use serve::{Listener, ServeError, serve, serve_on};
pub use shutdown::Shutdown;
