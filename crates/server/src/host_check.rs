//! Who may talk to a server without a key: no web page of another site, and nobody through a foreign host name.
//!
//! A page can point its own name at 127.0.0.1 and then read replies as its own; the `Host` header tells. A page can also
//! send blind cross-site requests; the `Origin` header tells.

use axum::http::{HeaderMap, Uri, header};

use crate::error::ApiError;

/// What is accepted, fixed when the server starts.
#[derive(Debug)]
pub(crate) struct HostCheck {
    /// `Host` is looked at only when bound to a loopback address: elsewhere any name may lead here.
    loopback: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl HostCheck {
    pub fn new(loopback: bool, hosts: &[String], origins: &[String]) -> Self {
        Self {
            loopback,
            hosts: hosts.iter().map(|h| name_of(h).to_ascii_lowercase()).collect(),
            origins: origins.iter().map(|o| o.trim_end_matches('/').to_ascii_lowercase()).collect(),
        }
    }

    /// 403 unless the request's host and origin are ours.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = host_header(uri, headers)?;
        if self.loopback {
            let Some(host) = host else {
                return Err(ApiError::forbidden("The request has no Host header."));
            };
            let name = name_of(host).to_ascii_lowercase();
            if !is_loopback(&name) && !self.hosts.contains(&name) {
                return Err(ApiError::forbidden(format!(
                    "Host {host:?} is not a name of this server, which is bound to a loopback address."
                )));
            }
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let refused = || ApiError::forbidden(format!("Requests from pages of {origin:?} are not accepted."));
        let text = origin.to_str().map_err(|_| refused())?.to_ascii_lowercase();
        let own = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let same = own.zip(host).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host));
        if origins.next().is_none() && (same || self.origins.contains(&text)) {
            Ok(())
        } else {
            Err(refused())
        }
    }
}

/// The host a request is for: the target's own when it is a whole URL, else the one `Host` header.
fn host_header<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    let mut all = headers.get_all(header::HOST).iter();
    let first = all.next();
    if all.next().is_some() {
        return Err(ApiError::forbidden("The request has more than one Host header."));
    }
    let given = match first {
        None => None,
        Some(value) => Some(
            value.to_str().map_err(|_| ApiError::forbidden("The Host header is not a host name."))?.trim(),
        ),
    };
    Ok(uri.authority().map(|a| a.as_str()).or(given))
}

/// A host without its port and brackets.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.split_once(':') {
        // More than one colon without brackets is an IPv6 address.
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

/// A name that always means this machine, whatever a name server says.
fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, Uri};

    use super::HostCheck;

    fn ask(check: &HostCheck, uri: &str, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        check.check(&uri.parse::<Uri>().unwrap(), &map).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_on_loopback() {
        let check = HostCheck::new(true, &["Maya.Box".into(), "desk:8080".into()], &[]);
        let good = [
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "[::1]",
            "[::ffff:127.0.0.1]:8080",
            "maya.box:8080",
            "desk",
        ];
        for host in good {
            assert!(ask(&check, "/", &[("host", host)]), "{host}");
        }
        let bad = [
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "192.168.1.2:8080",
            "0.0.0.0:8080",
            "[::2]:8080",
            "2130706433",
            "",
        ];
        for host in bad {
            assert!(!ask(&check, "/", &[("host", host)]), "{host}");
        }
        assert!(!ask(&check, "/", &[]));
        assert!(!ask(&check, "/", &[("host", "localhost"), ("host", "localhost")]));
        assert!(!ask(&check, "http://evil.example/", &[("host", "localhost")]));
        assert!(ask(&check, "http://localhost:8080/", &[("host", "localhost:8080")]));
    }

    #[test]
    fn any_host_elsewhere() {
        let check = HostCheck::new(false, &[], &[]);
        assert!(ask(&check, "/", &[("host", "gpu.lan:8080")]));
        assert!(ask(&check, "/", &[]));
        assert!(!ask(&check, "/", &[("host", "gpu.lan"), ("origin", "https://evil.example")]));
    }

    #[test]
    fn only_the_own_page_and_listed_ones() {
        let check = HostCheck::new(true, &[], &["https://chat.example/".into()]);
        let ask = |origin: &str| ask(&check, "/", &[("host", "localhost:8080"), ("origin", origin)]);
        assert!(ask("http://localhost:8080"));
        assert!(ask("https://chat.example"));
        assert!(!ask("https://evil.example"));
        assert!(!ask("http://localhost:3000"));
        assert!(!ask("http://localhost"));
        assert!(!ask("null"));
        assert!(!ask("file://"));
    }
}
