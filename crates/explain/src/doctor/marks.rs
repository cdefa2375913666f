//! Bits of packets' marks that kube-proxy and others use both.

use super::setters::{Does, MarkRule, of_others};
use super::{Patient, rules_of};
use crate::causes::listed;
use crate::finding::{Advice, Cause, Finding};
use iptables::ast::{Is, Match, Target};
use model::Family;
use std::collections::BTreeMap;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let bits = Bits::of(patient);
    let mut found = by_number(patient, bits);
    found.extend(by_rules(patient, bits));
    found
}

/// The bits that Kubernetes uses here.
#[derive(Clone, Copy, Debug)]
struct Bits {
    /// What is to be masqueraded.
    masquerade: u32,
    /// What old kubelets and proxies drop, where rules for it are left.
    drop: u32,
}

impl Bits {
    fn of(patient: &Patient) -> Bits {
        let mut masquerade = 0;
        let mut drop = 0;
        for saved in &patient.saved {
            for (_, chain, rule) in rules_of(&saved.rules) {
                match (chain, &rule.target) {
                    ("KUBE-MARK-MASQ", Target::Mark { value, .. }) => masquerade |= value,
                    ("KUBE-FIREWALL", Target::Drop) => drop |= asked(&rule.matches),
                    ("KUBE-MARK-DROP", Target::Mark { value, .. }) => drop |= value,
                    _ => {}
                }
            }
        }
        if masquerade == 0 {
            masquerade = patient.world.desired.get(Family::V4).node.mark.value();
        }
        Bits { masquerade, drop }
    }

    fn all(self) -> u32 {
        self.masquerade | self.drop
    }

    fn bit(self) -> u32 {
        self.masquerade.trailing_zeros()
    }

    /// What becomes of packets with some of the bits.
    fn consequence(self, hit: u32) -> String {
        let mut words = Vec::new();
        if hit & self.drop != 0 {
            words.push(format!(
                "KUBE-FIREWALL drops what has bit {:#x}: the packets never leave",
                self.drop
            ));
        }
        if hit & self.masquerade != 0 {
            words.push(format!(
                "KUBE-POSTROUTING masquerades what has bit {:#x} (masqueradeBit {}), with a source port by chance, and KUBE-FORWARD lets it \
                 through",
                self.masquerade,
                self.bit()
            ));
        }
        words.join("; ")
    }

    /// The bits in words, those alone that are hit.
    fn words(self, hit: u32) -> String {
        let each = [self.masquerade & hit, self.drop & hit];
        let words: Vec<String> = each
            .iter()
            .filter(|bit| **bit != 0)
            .map(|bit| format!("{bit:#x}"))
            .collect();
        words.join(" and ")
    }
}

fn asked(matches: &[Match]) -> u32 {
    let bits = matches.iter().filter_map(|one| match one {
        Match::Mark {
            is: Is::Equal((value, mask)),
        } => Some(value & mask),
        _ => None,
    });
    bits.fold(0, |all, bits| all | bits)
}

/// What to do: `other` is for whoever has charge of the other program.
fn advise(bits: Bits, taken: u32, other: &str) -> Advice {
    // A bit that nobody asks for, to move kube-proxy's to. Bit 31 is not taken by upstream.
    let free = (0..31).rev().find(|bit| {
        let one = 1_u32 << bit;
        taken & one == 0 && one != bits.masquerade
    });
    let or = free.map_or_else(String::new, |bit| {
        format!(", or give kube-proxy another bit (iptables.masqueradeBit: {bit})")
    });
    Advice {
        object: None,
        field: Some("iptables.masqueradeBit".to_owned()),
        action: format!("{other}{or}"),
    }
}

/// A mark as near as can be without Kubernetes' bits.
fn spared(mark: u32, bits: Bits) -> String {
    let spared = mark & !bits.all() & !0xc000;
    format!("{:#x}", if spared == 0 { 0x10 } else { spared })
}

/// Marks of interfaces of `WireGuard`, and those that policy routing asks for.
fn by_number(patient: &Patient, bits: Bits) -> Vec<Finding> {
    let facts = &patient.world.host_facts;
    // Both name one mark where wg-quick set it up.
    let mut marks: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut taken = 0;
    for (name, mark) in &facts.wireguard {
        marks
            .entry(*mark)
            .or_default()
            .push(format!("WireGuard's {name}"));
        taken |= mark;
    }
    for rule in facts.policy_rules.iter().flatten() {
        if let Some((value, mask)) = rule.mark {
            marks
                .entry(value & mask)
                .or_default()
                .push(format!("ip rule \"{}\"", rule.text));
            taken |= value & mask;
        }
    }
    let hit = marks.into_iter().filter(|(mark, _)| mark & bits.all() != 0);
    hit.map(|(mark, by)| {
        let hit = mark & bits.all();
        let what = format!(
            "mark overlap: {} uses mark {mark:#x}, which has {} of Kubernetes",
            listed(&by, 2),
            bits.words(hit)
        );
        let routed = by.iter().any(|who| who.starts_with("ip rule")) && mark == hit;
        let also = if routed {
            " And what kube-proxy marks is routed by that rule."
        } else {
            ""
        };
        Finding::fault(Cause::MarkOverlap, what)
            .because(format!("{}.{also}", bits.consequence(hit)))
            .advise(advise(
                bits,
                taken,
                &format!(
                    "give it another mark, such as {} (WireGuard: FwMark in [Interface])",
                    spared(mark, bits)
                ),
            ))
    })
    .collect()
}

/// A kind of rule, and its verb.
type Kind = (fn(&Does) -> bool, &'static str);

/// Others' rules that touch the bits.
fn by_rules(patient: &Patient, bits: Bits) -> Vec<Finding> {
    let rules = of_others(patient, bits.all());
    let kinds: [Kind; 3] = [
        (|does| matches!(does, Does::Sets(_)), "set"),
        (|does| matches!(does, Does::Clears(_)), "clear"),
        (|does| matches!(does, Does::ActsOn(_)), "act on"),
    ];
    let of_kind = |(is, verb): &Kind| {
        let all: Vec<&MarkRule> = rules.iter().filter(|rule| is(&rule.does)).collect();
        let first = all.first()?;
        let hit = all.iter().fold(0, |hit, rule| match rule.does {
            Does::Sets(bits) | Does::Clears(bits) | Does::ActsOn(bits) => hit | bits,
        });
        let mut places: Vec<String> = all.iter().map(|rule| rule.place.clone()).collect();
        places.dedup();
        let what = format!(
            "mark overlap: rules of another program {verb} {} of Kubernetes: {}",
            bits.words(hit),
            listed(&places, 3)
        );
        let consequence = match first.does {
            Does::Sets(_) => bits.consequence(hit),
            Does::Clears(_) => {
                "what kube-proxy marked is not masqueraded any more: replies go past this host, and the client refuses them".to_owned()
            }
            Does::ActsOn(_) => "packets that kube-proxy marked are stopped or translated there".to_owned(),
        };
        Some(
            Finding::fault(Cause::MarkOverlap, what)
                .because(format!("The rule: {}. So {consequence}.", first.text))
                .advise(advise(
                    bits,
                    hit,
                    "have the other program set and ask for bits of its own alone (a mask)",
                )),
        )
    };
    kinds.iter().filter_map(of_kind).collect()
}
