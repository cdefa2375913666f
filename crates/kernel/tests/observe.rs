//! What is read back is what `iptables-save` prints, rule for rule.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use iptables::ast::{ChainName, Ruleset, TableName};
use iptables::parse::save;
use kernel::nfacct::{Accounting, ensure_counters};
use kernel::{Backend, RuleKernel, Scope};
use model::Family;
use std::collections::BTreeSet;
use std::fmt::Write;
use support::{in_namespace, live, observed, tool, with_builtin};

/// A family's tool with a suffix, of a backend.
fn name(backend: Backend, family: Family, suffix: &str) -> String {
    let plain = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let word = match backend {
        Backend::NfTables => "nft",
        Backend::Legacy => "legacy",
    };
    format!("{plain}-{word}-{suffix}")
}

/// Every golden dump of upstream, and every other form of rule that we know of.
fn texts(backend: Backend) -> Vec<(String, Family, String)> {
    let cases = scenario::golden_cases();
    let mut texts: Vec<_> = cases
        .into_iter()
        .flat_map(|case| {
            let model::PerFamily { v4, v6 } = case.saved;
            [(case.name.clone(), Family::V4, v4), (case.name, Family::V6, v6)]
        })
        .collect();
    texts.push(("strangers".to_owned(), Family::V4, strangers(backend)));
    texts
}

/// Rules of filter that are not kube-proxy's; of many of them only the tool knows the words.
const STRANGE_FILTER: [&str; 40] = [
    "-i eth0 -o cali+ -p gre -j RETURN",
    "! -i eth0 -m mark ! --mark 0x1 -j RETURN",
    "! -s 10.0.0.0/12 -p udp -m udp --sport 1:20 ! --dport 53 -j REJECT --reject-with icmp-host-prohibited",
    "! -p tcp -m addrtype ! --src-type LOCAL --dst-type UNICAST -j DROP",
    "-m addrtype --src-type LOCAL --limit-iface-in",
    "-m addrtype --src-type UNICAST,LOCAL",
    "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset",
    "-p tcp -m tcp --tcp-option 8",
    "-p tcp -m tcp --sport 1:65535 -j ACCEPT",
    "-m limit --limit 5/min -j LOG --log-prefix \"hi there \"",
    "-p tcp -m multiport --dports 1,2",
    "-g U",
    "-p icmp -m icmp --icmp-type 8 -j ACCEPT",
    "-m state --state NEW -j ACCEPT",
    "-m conntrack --ctstate NEW --ctproto 6 -j ACCEPT",
    "-m conntrack --ctstate NEW --ctstatus ASSURED -j ACCEPT",
    "-m conntrack --ctorigdst 10.0.0.1 -j ACCEPT",
    "-m conntrack --ctstate NEW --ctdir ORIGINAL -j ACCEPT",
    "-m conntrack ! --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j ACCEPT",
    "-f -j ACCEPT",
    "-s 10.0.0.0/255.0.255.0 -j ACCEPT",
    "-s 128.0.0.0/1 -m mark --mark 0x10/0xf0 -m addrtype ! --dst-type LOCAL",
    "-s 10.0.0.0/9",
    "! -d 10.1.2.0/23",
    "-d 10.1.2.3/32 ! -i veth+",
    "-m recent --rcheck --seconds 5 --name x --mask 255.255.255.255 --rsource",
    "-m recent --rcheck --seconds 5 --reap --name x --mask 255.255.255.0 --rsource",
    "-m recent --rcheck --seconds 5 --reap --hitcount 3 --name x --mask 255.255.255.255 --rsource",
    "-m recent ! --rcheck --seconds 5 --reap --name x --mask 255.255.255.255 --rsource",
    "-m recent --update --seconds 5 --reap --name x --mask 255.255.255.255 --rsource",
    "-m recent --rcheck --seconds 5 --reap --rttl --name x --mask 255.255.255.255 --rsource",
    "-m recent --set --name x --mask 255.255.255.255 --rdest",
    "-m statistic --mode nth --every 3 --packet 0",
    "-m statistic --mode random ! --probability 0.50000000000",
    "",
    "-p tcp -m tcp ! --dport 1:5",
    "-p sctp -m sctp --dport 80:90 -j ACCEPT",
    "-p sctp -m sctp --sport 7 --chunk-types all INIT",
    "-p tcp -m tcp --sport 5 --dport 6 -m comment --comment \"quote \\\" and \\\\ done\" -j MARK --set-xmark 0x5/0xffffffff",
    "-m connmark --mark 0x1",
];

/// The same of nat.
const STRANGE_NAT: [&str; 9] = [
    "-p tcp -j MASQUERADE --to-ports 1-5",
    "-j MASQUERADE --random",
    "-p tcp -j DNAT --to-destination 10.0.0.1:80",
    "-p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.2:80",
    "-p tcp -j DNAT --to-destination 10.0.0.1:80-90",
    "-p tcp -j DNAT --to-destination 10.0.0.1:80 --persistent",
    "-j DNAT --to-destination 10.0.0.1",
    "-p tcp -j REDIRECT --to-ports 80",
    "-j SNAT --to-source 10.0.0.1",
];

/// Each rule in a chain of its own, since one that only the tool can tell sends the whole chain to the tool; and all
/// of them in one chain.
fn strangers(backend: Backend) -> String {
    let table = |name: &str, rules: &[&str]| {
        let own: Vec<String> = (0..rules.len()).map(|n| format!("S{n}")).collect();
        let mut text = format!("*{name}\n:U - [0:0]\n:T - [0:0]\n");
        for chain in &own {
            writeln!(text, ":{chain} - [0:0]").unwrap();
        }
        for (chain, rule) in own.iter().zip(rules) {
            writeln!(text, "-A {chain} {rule}\n-A T {rule}").unwrap();
        }
        text + "COMMIT\n"
    };
    let mut filter = STRANGE_FILTER.to_vec();
    if backend == Backend::NfTables {
        // Legacy refuses this one.
        filter.push("! -p udp -m udp --dport 5");
    }
    table("filter", &filter) + &table("nat", &STRANGE_NAT)
}

/// Restores each text and compares what is observed with what the tool then prints, and with the text itself.
fn every_text_is_read_back(backend: Backend) {
    assert_eq!(ensure_counters(), Accounting::Present);
    let mut kernel = live(backend);
    let mut rules = 0;
    for (case, family, text) in texts(backend) {
        if backend == Backend::NfTables {
            tool(&["nft", "flush", "ruleset"], "");
        }
        tool(&[&name(backend, family, "restore")], &text);
        let printed = tool(&[&name(backend, family, "save")], "");
        let want = with_builtin(save(&printed, family).ruleset);
        let have = observed(&mut kernel, family, &Scope::Everything).unwrap();
        assert_same(&case, family, &want, &have);
        assert_same(&case, family, &with_builtin(save(&text, family).ruleset), &have);
        rules += have
            .tables
            .values()
            .flat_map(|t| t.chains.values())
            .map(|c| c.rules.len())
            .sum::<usize>();
        every_chain_is_read_alone(&mut kernel, family, &have);
        if backend == Backend::Legacy {
            for table in ["filter", "nat", "mangle"] {
                let empty = format!("*{table}\nCOMMIT\n");
                tool(&[&name(backend, family, "restore")], &empty);
            }
        }
    }
    assert!(rules > 8_000, "only {rules} rules compared");
}

/// Chain by chain, so that a failure can be read.
fn assert_same(case: &str, family: Family, want: &Ruleset, have: &Ruleset) {
    for (table, content) in &want.tables {
        let observed = &have.tables[table];
        for (chain, want) in &content.chains {
            assert_eq!(
                observed.chains.get(chain),
                Some(want),
                "{case} {family} {table} {chain}"
            );
        }
        let names = |t: &iptables::ast::Table| t.chains.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(observed), names(content), "{case} {family} {table}");
    }
    assert_eq!(have.tables.len(), want.tables.len(), "{case} {family}");
}

fn every_chain_is_read_alone(kernel: &mut dyn RuleKernel, family: Family, all: &Ruleset) {
    for (table, content) in &all.tables {
        let mut names: BTreeSet<ChainName> = content.chains.keys().step_by(3).cloned().collect();
        names.insert(ChainName::new("NOT-THERE").unwrap());
        let part = observed(kernel, family, &Scope::Chains(*table, names.clone())).unwrap();
        let want = content.chains.iter().filter(|(name, _)| names.contains(*name));
        let have = part.tables.get(table).map(|t| &t.chains);
        assert!(have.into_iter().flatten().eq(want), "{family} {table}");
    }
}

#[test]
fn golden_rules_read_by_netlink_equal_iptables_save() {
    in_namespace("golden_rules_read_by_netlink_equal_iptables_save", || {
        every_text_is_read_back(Backend::NfTables);
    });
}

#[test]
fn golden_rules_read_from_legacy_equal_iptables_save() {
    in_namespace("golden_rules_read_from_legacy_equal_iptables_save", || {
        support::own_run();
        every_text_is_read_back(Backend::Legacy);
    });
}

#[test]
fn namespace_without_rules_has_empty_builtin_chains() {
    in_namespace("namespace_without_rules_has_empty_builtin_chains", || {
        for family in Family::ALL {
            let mut kernel = live(Backend::NfTables);
            let have = observed(&mut kernel, family, &Scope::Everything).unwrap();
            assert_eq!(have, with_builtin(Ruleset::default()));
            let one = Scope::Chains(TableName::Nat, [ChainName::new("POSTROUTING").unwrap()].into());
            let have = observed(&mut kernel, family, &one).unwrap();
            assert_eq!(have.tables[&TableName::Nat].chains.len(), 1);
        }
    });
}

/// Other software writes rules of nftables into `ip filter` (Tailscale does), for which iptables has no words: the tool then
/// refuses the whole chain, or the table.
#[test]
fn rules_without_words_in_iptables_hold_up_nobody_and_are_kept() {
    in_namespace(
        "rules_without_words_in_iptables_hold_up_nobody_and_are_kept",
        || {
            let mut kernel = live(Backend::NfTables);
            tool(
                &["iptables-nft-restore", "--noflush"],
                "*filter\n:X - [0:0]\n-A INPUT -j X\n-A X -j ACCEPT\nCOMMIT\n",
            );
            let foreign = "add rule ip filter INPUT fib daddr type local accept\n\
            add chain ip filter ts-forward\n\
            add rule ip filter ts-forward meta mark set meta mark & 0xff00ffff ^ 0x00040000\n\
            add rule ip filter ts-forward meta mark & 0x00ff0000 == 0x00040000 accept\n\
            add rule ip filter FORWARD jump ts-forward\n\
            add set ip filter blocked { type ipv4_addr; }\n\
            add rule ip filter OUTPUT ip daddr @blocked drop\n\
            add rule ip filter OUTPUT tcp dport { 80, 443 } accept\n";
            tool(
                &["iptables-nft-restore", "--noflush"],
                "*filter\n:OUTPUT ACCEPT [0:0]\n-A FORWARD -j X\nCOMMIT\n",
            );
            tool(&["nft", "-f", "-"], foreign);
            let found = observed(&mut kernel, Family::V4, &Scope::Everything).unwrap();
            let rules = |chain: &str| -> Vec<String> {
                let chain = found.chain(TableName::Filter, chain).unwrap();
                let text = |rule| {
                    iptables::render::RuleText {
                        rule,
                        family: Family::V4,
                    }
                    .to_string()
                };
                chain.rules.iter().map(text).collect()
            };
            let input = rules("INPUT");
            assert_eq!(input[0], "-j X");
            assert!(input[1].starts_with("-j nft rule handle "), "{input:?}");
            assert_eq!(rules("FORWARD"), ["-j X", "-j ts-forward"]);
            let foreign = rules("ts-forward");
            assert!(foreign[0].starts_with("-j nft rule handle "), "{foreign:?}");
            assert_eq!(foreign[1], "-m mark --mark 0x40000/0xff0000 -j ACCEPT");
            // The tool says `-j DROP` of the first, and ends well.
            let sets = rules("OUTPUT");
            assert!(
                sets.iter().all(|rule| rule.starts_with("-j nft rule handle ")),
                "{sets:?}"
            );
            assert_eq!(sets.len(), 2);
            let again = observed(&mut kernel, Family::V4, &Scope::Everything).unwrap();
            assert_eq!(again, found);
        },
    );
}
