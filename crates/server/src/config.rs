//! What an operator may set.

use std::time::Duration;

use crate::engine::SamplerParams;

/// Settings of a server. [`Config::default`] is what `maya serve` uses without flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest request body, bytes. Default 64 MiB.
    pub max_body: usize,
    /// Bytes of all request bodies held at once, from their first byte until the prompt is made; at least
    /// [`Config::max_body`]. Default 256 MiB; what is more gets a 503.
    pub max_bodies: usize,
    /// Requests that may wait behind the running one. Default 32; one more gets a 429.
    pub queue: usize,
    /// Longest silence on an open event stream before a comment line is sent. Default 5 s: clients give up after 10 to
    /// 60 s without a byte.
    pub keep_alive: Duration,
    /// How long running requests may go on after the first shutdown request. Default 20 s.
    pub shutdown_grace: Duration,
    /// Host names, besides the loopback ones, under which a server bound to a loopback address may be addressed.
    pub allowed_hosts: Vec<String>,
    /// Pages (`https://host:port`), besides the server's own, that may send requests.
    pub allowed_origins: Vec<String>,
    /// Sampler settings for what a request leaves open, but for the seed.
    pub sampler: SamplerParams,
    /// The seed of requests that name none. Default none: each gets one of its own.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_body: 64 << 20,
            max_bodies: 256 << 20,
            queue: 32,
            keep_alive: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(20),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            sampler: SamplerParams::default(),
            seed: None,
        }
    }
}
