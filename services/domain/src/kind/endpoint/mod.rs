//! `endpoint`: an OpenAI-compatible endpoint that runs already: probed, listed, called.

use crate::Rejection;
use url::{Host, Url};

pub(super) fn validate(path: &str, url: &str, model: &str) -> Result<(), Rejection> {
    let at = format!("{path}.url");
    let parsed = Url::parse(url).map_err(|error| Rejection::field(&at, format!("is not a URL: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(Rejection::field(at, "must begin with http:// or https://"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Rejection::field(at, "must not hold a user name or password"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(Rejection::field(at, "must not hold a query or a fragment"));
    }
    match parsed.host() {
        Some(Host::Domain(name)) if !name.is_empty() => {}
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => {}
        Some(Host::Domain(_)) | None => return Err(Rejection::field(at, "must name a host")),
    }
    if model.trim().is_empty() || model.chars().count() > 256 || model.chars().any(char::is_control) {
        return Err(Rejection::field(format!("{path}.model"), "must have 1 to 256 printable characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_plain_http() {
        assert_eq!(validate("spec", "http://127.0.0.1:8000/v1", "m"), Ok(()));
        assert_eq!(validate("spec", "https://models.example/v1", "m"), Ok(()));
        for bad in ["", "file:///etc/passwd", "gopher://x", "http://", "http://u:p@h/v1", "http://h/v1?x=1", "http://h/#f", "h/v1"] {
            assert_eq!(validate("spec", bad, "m").unwrap_err().field.as_deref(), Some("spec.url"), "{bad}");
        }
    }

    #[test]
    fn a_model_is_named() {
        for bad in ["", "  ", "a\0", &"x".repeat(257)] {
            assert_eq!(validate("spec", "http://h/v1", bad).unwrap_err().field.as_deref(), Some("spec.model"));
        }
    }
}
