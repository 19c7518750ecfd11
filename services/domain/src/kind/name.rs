//! The name of a workload outside: what routers and object stores know it by.

use signalbox_events::WorkloadId;

/// Longest part of the display name that is kept.
const SLUG: usize = 40;

/// A name that is safe everywhere (RFC 1123, at most 49 characters) and unique: the display name's ASCII letters and
/// digits, then the last 32 bits of the id, which are random in a UUIDv7.
pub fn object_name(display_name: &str, id: WorkloadId) -> String {
    let mut slug = String::new();
    for character in display_name.chars() {
        if slug.len() == SLUG {
            break;
        }
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_matches('-');
    // A DNS label begins with a letter where services are made of it.
    let slug = if slug.starts_with(|first: char| first.is_ascii_lowercase()) { slug.to_owned() } else { format!("m-{slug}") };
    let suffix = hex::encode(&id.0.as_bytes()[12..]);
    format!("{}-{suffix}", slug.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn every_display_name_gives_a_safe_name() {
        let id = WorkloadId(Uuid::from_u128(0xabcd_ef01));
        let table = [
            ("ibm-granite/granite-3b-code-instruct-accelerator", "ibm-granite-granite-3b-code-instruct-acc-abcdef01"),
            ("Qwen/Qwen3-8B", "qwen-qwen3-8b-abcdef01"),
            ("模型-一号", "m-abcdef01"),
            ("UPPER", "upper-abcdef01"),
            ("-x", "x-abcdef01"),
            ("x-", "x-abcdef01"),
            ("1abc", "m-1abc-abcdef01"),
            (" a ", "a-abcdef01"),
            ("a..b", "a-b-abcdef01"),
            ("a%b", "a-b-abcdef01"),
            ("a*b", "a-b-abcdef01"),
        ];
        for (display, expected) in table {
            assert_eq!(object_name(display, id), expected, "{display}");
            assert!(signalbox_events::subject::is_token(expected));
        }
    }

    #[test]
    fn long_names_stay_distinct_and_short() {
        let (first, second) = (WorkloadId(Uuid::from_u128(1)), WorkloadId(Uuid::from_u128(2)));
        for length in [1, 53, 63, 64, 100, 253] {
            let name = "a".repeat(length);
            assert!(object_name(&name, first).len() <= 49);
            assert_ne!(object_name(&name, first), object_name(&name, second));
        }
    }
}
