//! The one reading of addresses that people give: what is checked is what is called.

use crate::Rejection;
use url::{Host, Url};

/// Reads the base URL of a service. `path` names the field.
pub(crate) fn base_url(path: &str, text: &str) -> Result<Url, Rejection> {
    let parsed = Url::parse(text).map_err(|error| Rejection::field(path, format!("is not a URL: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(Rejection::field(path, "must begin with http:// or https://"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Rejection::field(path, "must not hold a user name or password"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(Rejection::field(path, "must not hold a query or a fragment"));
    }
    match parsed.host() {
        Some(Host::Domain(name)) if !name.is_empty() => Ok(parsed),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => Ok(parsed),
        Some(Host::Domain(_)) | None => Err(Rejection::field(path, "must name a host")),
    }
}

/// Scheme, host and port, default ports left out: what a credential is bound to.
pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Whether a secret may travel to it: by TLS, or without leaving the machine.
pub(crate) fn is_private(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_plain_http() {
        for good in ["http://127.0.0.1:8000/v1", "https://models.example/v1", "http://[::1]:1"] {
            assert!(base_url("url", good).is_ok(), "{good}");
        }
        for bad in ["", "file:///etc/passwd", "gopher://x", "http://", "http://u:p@h/v1", "http://h/v1?x=1", "http://h/#f", "h/v1"] {
            assert_eq!(base_url("url", bad).unwrap_err().field.as_deref(), Some("url"), "{bad}");
        }
    }

    #[test]
    fn an_origin_has_one_spelling() {
        let of = |text: &str| origin(&base_url("url", text).unwrap());
        assert_eq!(of("https://API.example.com:443/v1/"), "https://api.example.com");
        assert_eq!(of("http://127.0.0.1:8080/v1"), "http://127.0.0.1:8080");
    }

    #[test]
    fn secrets_travel_by_tls_or_stay_here() {
        let table =
            [("https://a/v1", true), ("http://a/v1", false), ("http://127.0.0.2:1", true), ("http://[::1]:1", true), ("http://10.0.0.1", false)];
        for (text, private) in table {
            assert_eq!(is_private(&base_url("url", text).unwrap()), private, "{text}");
        }
    }
}
