//! A network namespace of the test's own, in which the real tools run.

use lab::Scratch;
use model::Family;

/// Which kind of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `iptables-nft-...`
    Nft,
    /// `iptables-legacy-...`
    Legacy,
}

/// A network namespace of the test's own, and the tools of iptables in it.
pub struct Namespace(pub Scratch);

impl Namespace {
    /// A new one; `None`, said aloud, where this cannot be tested. With `KPRS_REQUIRE_LIVE` set that is a failure.
    pub fn new() -> Option<Namespace> {
        Scratch::new("ipt").map(Namespace)
    }

    /// `iptables-restore --noflush`, which must take the input.
    pub fn restore(&self, kind: Kind, family: Family, input: &str) {
        let restore = tool(kind, family, "restore");
        let output = self.0.run(&[&restore, "-w", "5", "--noflush"], input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{kind:?} {family} refused: {said}\n{input}"
        );
    }

    /// `iptables-save`.
    pub fn save(&self, kind: Kind, family: Family) -> String {
        self.0.must(&[&tool(kind, family, "save")], "")
    }
}

fn tool(kind: Kind, family: Family, verb: &str) -> String {
    let program = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let kind = match kind {
        Kind::Nft => "nft",
        Kind::Legacy => "legacy",
    };
    format!("{program}-{kind}-{verb}")
}
