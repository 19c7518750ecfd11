//! `endpoint`: an OpenAI-compatible endpoint that runs already: probed, listed, called.

use crate::Rejection;
use crate::address::base_url;

pub(super) fn validate(path: &str, url: &str, model: &str) -> Result<(), Rejection> {
    base_url(&format!("{path}.url"), url)?;
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
