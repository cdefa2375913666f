//! `--version`: the release of Kubernetes whose behaviour this has, and our own version as build metadata.

/// What `--version` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One line.
    Short,
    /// All that is known.
    Raw,
}

/// The release of Kubernetes whose behaviour this has.
const RELEASE: &str = "v1.36.2";

/// Reads the flag's value. A version of the same release may be named, and changes nothing.
///
/// # Errors
/// Upstream's words for another release.
pub fn asked(value: &str) -> Result<Option<Version>, String> {
    match value {
        "raw" => return Ok(Some(Version::Raw)),
        _ if value.starts_with('v') => {}
        _ => return config::flags::parse_bool(value).map(|on| on.then_some(Version::Short)),
    }
    let release = value.split(['-', '+']).next().unwrap_or_default();
    if release == RELEASE {
        Ok(None)
    } else {
        Err(format!(
            "version {value:?} must match major/minor/patch of default version {RELEASE:?}"
        ))
    }
}

/// The answer.
pub fn text(version: Version) -> String {
    let git_version = format!("{RELEASE}+rs.{}", env!("CARGO_PKG_VERSION"));
    match version {
        Version::Short => format!("Kubernetes {git_version}"),
        Version::Raw => format!(
            "version.Info{{Major:\"1\", Minor:\"36\", EmulationMajor:\"\", EmulationMinor:\"\", MinCompatibilityMajor:\"\", MinCompatibilityMinor:\"\", GitVersion:\"{git_version}\", GitCommit:\"\", GitTreeState:\"\", BuildDate:\"\", GoVersion:\"\", Compiler:\"rustc\", Platform:\"{}/{}\"}}",
            std::env::consts::OS,
            match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            }
        ),
    }
}
