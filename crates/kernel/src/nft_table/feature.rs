//! What the table takes of a kernel that may have been built, or installed, without it.

use model::Family;
use nftables::ast::{Action, Base, BaseKind, Chain, Data, Flags, Frame, Hook, Match, Name, Rule, Set};
use nftables::names::{CONNECTION_KEY, SERVICE_KEY};
use std::fmt;

/// Something that the table takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Tables of the family, and base chains of type filter.
    Table,
    /// Base chains of type nat.
    NatChain,
    /// State and status of connections.
    Connections,
    /// A die.
    Random,
    /// Whether an address is the host's.
    LocalAddresses,
    /// Translated destinations.
    Dnat,
    /// Rewritten sources.
    Masquerade,
    /// ICMP errors.
    Reject,
    /// Sets of ranges with several fields.
    Ranges,
    /// Sets that packets add to and delete from.
    Clients,
}

/// Something that a kernel lacks.
#[derive(Clone, Debug)]
pub struct Lack {
    /// What.
    pub feature: Feature,
    /// For which family.
    pub family: Family,
    /// The kernel's answer.
    pub said: String,
}

/// For people: what is missing, and what brings it.
impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, module, option) = self.feature.words(self.family);
        write!(
            f,
            "{what} for {} (module {module}, kernel option {option}): {}",
            self.family, self.said
        )
    }
}

impl Feature {
    /// All of them; each works only if those before it do.
    pub const ALL: [Feature; 10] = [
        Feature::Table,
        Feature::NatChain,
        Feature::Connections,
        Feature::Random,
        Feature::LocalAddresses,
        Feature::Dnat,
        Feature::Masquerade,
        Feature::Reject,
        Feature::Ranges,
        Feature::Clients,
    ];

    /// What it is, the module that brings it, and the kernel's option for it.
    fn words(self, family: Family) -> (&'static str, &'static str, &'static str) {
        let of = |v4, v6| match family {
            Family::V4 => v4,
            Family::V6 => v6,
        };
        match self {
            Feature::Table => (
                "tables",
                "nf_tables",
                of("CONFIG_NF_TABLES_IPV4", "CONFIG_NF_TABLES_IPV6"),
            ),
            Feature::NatChain => ("chains of type nat", "nft_chain_nat", "CONFIG_NFT_NAT"),
            Feature::Connections => ("`ct`", "nft_ct", "CONFIG_NFT_CT"),
            Feature::Random => ("`numgen`", "nft_numgen", "CONFIG_NFT_NUMGEN"),
            Feature::LocalAddresses => (
                "`fib`",
                of("nft_fib_ipv4", "nft_fib_ipv6"),
                of("CONFIG_NFT_FIB_IPV4", "CONFIG_NFT_FIB_IPV6"),
            ),
            Feature::Dnat => ("`dnat`", "nft_nat", "CONFIG_NFT_NAT"),
            Feature::Masquerade => ("`masquerade`", "nft_masq", "CONFIG_NFT_MASQ"),
            Feature::Reject => (
                "`reject`",
                of("nft_reject_ipv4", "nft_reject_ipv6"),
                of("CONFIG_NFT_REJECT_IPV4", "CONFIG_NFT_REJECT_IPV6"),
            ),
            Feature::Ranges => (
                "sets of ranges with several fields",
                "nf_tables",
                "CONFIG_NF_TABLES of 5.6 or later",
            ),
            Feature::Clients => ("sets that packets add to", "nf_tables", "CONFIG_NF_TABLES"),
        }
    }

    /// The least that takes it, under names that no table has.
    pub(super) fn frame(self, family: Family) -> Frame {
        let (mut sets, mut chains) = (Vec::new(), Vec::new());
        match self {
            Feature::Table => chains.push(base(BaseKind::Filter)),
            Feature::NatChain => chains.push(base(BaseKind::Nat)),
            Feature::Connections => chains.push(chain(vec![Match::StateNew], Action::Drop)),
            Feature::Random => {
                let sides = [name("one"), name("two")];
                chains.extend(sides.clone().map(empty));
                chains.push(chain(vec![], Action::JumpRandom(sides.to_vec())));
            }
            Feature::LocalAddresses => chains.push(chain(vec![Match::SourceIsLocal], Action::Drop)),
            Feature::Dnat => {
                sets.push(set(Data::Endpoint, Flags::Plain));
                chains.push(chain(vec![], Action::DnatTo(SERVICE_KEY, name("set"))));
            }
            Feature::Masquerade => chains.push(chain(vec![], Action::Masquerade)),
            Feature::Reject => chains.push(chain(vec![], Action::Reject)),
            Feature::Ranges => sets.push(set(Data::None, Flags::Interval)),
            Feature::Clients => {
                sets.push(set(Data::None, Flags::Clients { size: 1 }));
                let (key, set) = (CONNECTION_KEY, name("set"));
                let timeout = 1;
                let forget = Action::Forget {
                    key,
                    set: set.clone(),
                };
                let mut both = chain(vec![], Action::Remember { key, set, timeout });
                both.rules.push(rule(vec![], forget));
                chains.push(both);
            }
        }
        Frame { family, sets, chains }
    }
}

fn name(of: &str) -> Name {
    Name::new(format!("feature/{of}"))
}

fn set(data: Data, flags: Flags) -> Set {
    let key = match data {
        Data::None => CONNECTION_KEY,
        Data::Endpoint => SERVICE_KEY,
    };
    Set {
        name: name("set"),
        key,
        data,
        flags,
        comment: "",
    }
}

fn empty(name: Name) -> Chain {
    Chain {
        name,
        base: None,
        rules: vec![],
    }
}

fn chain(matches: Vec<Match>, action: Action) -> Chain {
    Chain {
        rules: vec![rule(matches, action)],
        ..empty(name("chain"))
    }
}

fn rule(matches: Vec<Match>, action: Action) -> Rule {
    Rule {
        matches,
        actions: vec![action],
        comment: None,
    }
}

/// At a priority that base chains of either kind may have.
fn base(kind: BaseKind) -> Chain {
    Chain {
        base: Some(Base {
            kind,
            hook: Hook::Prerouting,
            priority: -100,
        }),
        ..empty(name("base"))
    }
}
