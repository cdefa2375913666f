//! Which kernel this is.

use std::fmt;

/// The release of a kernel (`uname -r`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    text: String,
    version: Option<(u32, u32)>,
}

impl Release {
    /// That of the running kernel.
    pub fn running() -> Release {
        Release::of(&rustix::system::uname().release().to_string_lossy())
    }

    /// A release as text: `6.1.0-57-amd64`, `5.13-rc1`, `4.18.0-553.el8.x86_64`.
    pub fn of(text: &str) -> Release {
        let mut numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .map(|digits| digits.parse().ok());
        let version = numbers.next().flatten().zip(numbers.next().flatten());
        Release {
            text: text.to_owned(),
            version,
        }
    }

    /// Whether it is older than a version; one that cannot be read is not known to be.
    pub fn is_before(&self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version < (major, minor))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_older_by_number_and_not_by_text() {
        for (text, is_before) in [
            ("5.12.19", true),
            ("5.9.0-5-amd64", true),
            ("4.18.0-553.el8_10.x86_64", true),
            ("5.13.0", false),
            ("5.13-rc1", false),
            ("5.100.1", false),
            ("6.1.0-57-amd64", false),
            ("10.0", false),
            ("a kernel of my own", false),
        ] {
            assert_eq!(Release::of(text).is_before(5, 13), is_before, "{text}");
        }
    }
}
