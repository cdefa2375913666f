//! `--cleanup` takes out exactly what the daemon wrote, and `--init-only` writes no rule.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, shell, web};
use live::daemon::{Setup, binary};
use live::manifests::Manifests;
use live::rules;
use live::traffic::rules_say;
use model::Family;

/// Rules of strangers and of the kubelet, on both backends.
const STRANGERS: &str = "
for tool in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
  $tool -t nat -N CNI-HOSTPORT-DNAT
  $tool -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
  $tool -t mangle -N KUBE-KUBELET-CANARY
  $tool -t filter -N KUBE-FIREWALL
  $tool -t filter -A INPUT -j KUBE-FIREWALL
  $tool -t filter -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
done";

/// What an older kube-proxy left on legacy: a chain and a jump to it.
const LEFT_ON_LEGACY: &str = "
iptables-legacy -t nat -N KUBE-SERVICES
iptables-legacy -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA
iptables-legacy -t nat -A KUBE-SERVICES -d 10.1.0.200 -j KUBE-SVC-AAAAAAAAAAAAAAAA
iptables-legacy -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES";

/// All rules of the node without comments, counters and times.
fn everything(lab: &Lab) -> Vec<String> {
    let mut lines = Vec::new();
    for backend in [kernel::Backend::NfTables, kernel::Backend::Legacy] {
        for family in Family::ALL {
            let saved = rules::saved_by(lab, NODE, family, backend);
            let rules = saved.lines().filter(|line| {
                !line.starts_with('#') && !line.ends_with(']') && *line != "COMMIT" && !line.starts_with('*')
            });
            lines.extend(rules.map(|line| format!("{backend} {family} {line}")));
            let chains = saved
                .lines()
                .filter(|line| line.starts_with(":KUBE") || line.starts_with(":CNI"));
            lines.extend(
                chains.map(|line| format!("{backend} {family} {}", line.split('[').next().unwrap_or(line))),
            );
        }
    }
    lines
}

fn run(lab: &Lab, flags: &[&str]) -> String {
    let program = binary().to_string_lossy();
    let mut words = vec![program.as_ref()];
    words.extend_from_slice(flags);
    let finished = lab
        .exec(NODE, &words)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    finished.stderr
}

#[test]
fn cleanup_leaves_the_host_as_it_was_without_kube_proxy() {
    if !available(&["iptables-nft", "iptables-legacy", "ip6tables-legacy"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("clean"), Manifests::new());
    shell(&lab, STRANGERS);
    let before = everything(&lab);
    assert!(
        before.iter().any(|line| line.contains("KUBE-FIREWALL")),
        "{before:#?}"
    );
    manifests.put("web.json", &web(4));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    rules_say(&lab, "default/web", &daemon);
    daemon.kill();
    shell(&lab, LEFT_ON_LEGACY);
    assert!(everything(&lab).len() > before.len() + 10);

    run(&lab, &["--cleanup"]);
    let after = everything(&lab);
    let ours: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
    // The daemon fills KUBE-FIREWALL, which it shares with the kubelet, and what is in it stays.
    let ours: Vec<&&String> = ours
        .iter()
        .filter(|line| !line.contains("KUBE-FIREWALL"))
        .collect();
    assert!(ours.is_empty(), "left: {ours:#?}");
    let gone: Vec<&String> = before
        .iter()
        .filter(|line| !after.contains(line) && !line.contains("-A KUBE-FIREWALL"))
        .collect();
    assert!(gone.is_empty(), "taken from others: {gone:#?}");
    // Again: nothing to do is no failure.
    run(&lab, &["--cleanup"]);
}

/// Of nftables and ipvs mode what this kernel has, whole and in halves, on both backends and in both families.
const OTHER_MODES: &str = "
nft add table ip kube-proxy
nft add chain ip kube-proxy services
nft add table ip6 kube-proxy
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6
ipset create KUBE-IPVS-IPS hash:ip
for tool in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
  $tool -t nat -N KUBE-LOAD-BALANCER
  $tool -t nat -N KUBE-MARK-MASQ
  $tool -t nat -A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
  $tool -N KUBE-IPVS-OUT-FILTER
  $tool -A OUTPUT -j KUBE-IPVS-OUT-FILTER
done
iptables-nft -t nat -A KUBE-LOAD-BALANCER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
iptables-legacy -A KUBE-IPVS-OUT-FILTER -m set --match-set KUBE-IPVS-IPS dst -j REJECT";

/// What is a stranger's, though it looks alike.
const LOOKS_ALIKE: &str = "
nft add table inet kube-proxy
nft add table ip kube-proxy-old
ipset create KUBE-MINE hash:ip
ipset add KUBE-MINE 10.9.9.9
iptables-nft -A INPUT -m set --match-set KUBE-MINE src -j DROP
iptables-nft -t nat -N KUBE-NODE-PORTS
ip link add kube-ipvs0 type bridge
ip addr add 10.1.0.200/32 dev kube-ipvs0";

/// What is there beside iptables' rules.
fn others(lab: &Lab) -> String {
    shell(
        lab,
        "nft list tables | grep kube-proxy || true; ipset save; ip -o addr show dev kube-ipvs0 || true",
    )
}

#[test]
fn cleanup_takes_what_other_modes_left_says_so_and_leaves_what_looks_alike() {
    if !available(&[
        "iptables-nft",
        "iptables-legacy",
        "ip6tables-legacy",
        "nft",
        "ipset",
    ]) {
        return;
    }
    let lab = cluster::up("modes");
    shell(&lab, LOOKS_ALIKE);
    let (before, rules_before) = (others(&lab), everything(&lab));
    shell(&lab, OTHER_MODES);
    assert!(everything(&lab).len() > rules_before.len() + 10);

    let program = binary().to_string_lossy().into_owned();
    let finished = lab.exec(NODE, &[&program, "--cleanup"]);
    let finished = finished.unwrap_or_else(|error| panic!("{}", error.chain()));
    // An interface of that name which is none of kube-proxy's stays, and that is said.
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("is of type \\\"bridge\\\""),
        "{}",
        finished.stderr
    );
    assert_eq!(others(&lab), before);
    assert_eq!(everything(&lab), rules_before);
    for said in [
        "nftables table ip kube-proxy",
        "nftables table ip6 kube-proxy",
        "ipset KUBE-6-LOAD-BALANCER-SOURCE-CID",
        "filter chain KUBE-IPVS-OUT-FILTER",
        "nat chain KUBE-LOAD-BALANCER",
    ] {
        assert!(
            finished.stderr.contains(said),
            "{said} is not in:\n{}",
            finished.stderr
        );
    }

    shell(&lab, "ip link del kube-ipvs0");
    let before = others(&lab);
    assert!(
        !run(&lab, &["--cleanup"]).contains("removed"),
        "there was something left"
    );
    assert_eq!(others(&lab), before);
    assert_eq!(everything(&lab), rules_before);
}

/// The tables of legacy that the node has, both families'.
fn tables_of_legacy(lab: &Lab) -> String {
    shell(
        lab,
        "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null || true",
    )
}

/// Asking legacy's tools for a table makes it.
#[test]
fn cleanup_makes_no_table_by_looking() {
    if !available(&["iptables-nft", "iptables-legacy", "ip6tables-legacy"]) {
        return;
    }
    let lab = cluster::up("tables");
    let before = tables_of_legacy(&lab);
    run(&lab, &["--cleanup"]);
    assert_eq!(tables_of_legacy(&lab), before);

    shell(&lab, "iptables-legacy -t filter -N KUBE-SERVICES");
    let before = tables_of_legacy(&lab);
    assert!(run(&lab, &["--cleanup"]).contains("filter chain KUBE-SERVICES"));
    assert_eq!(tables_of_legacy(&lab), before);
}

#[test]
fn cleanup_without_rights_says_that_it_could_not_look_and_fails() {
    if !available(&["iptables-nft", "iptables-legacy", "setpriv"]) {
        return;
    }
    let lab = cluster::up("rights");
    shell(&lab, LEFT_ON_LEGACY);
    shell(&lab, "iptables-nft -t nat -N KUBE-SERVICES");
    let before = everything(&lab);
    let program = binary().to_string_lossy().into_owned();
    let without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let words = [&without_rights[..], &[&program, "--cleanup"]].concat();
    let finished = lab.exec(NODE, &words);
    let finished = finished.unwrap_or_else(|error| panic!("{}", error.chain()));
    let said = &finished.stderr;
    assert_eq!(finished.status.code(), Some(1), "{said}");
    for unread in ["nf_tables, IPv4", "legacy, IPv4"] {
        let words = format!("{unread}: the rules cannot be read");
        assert!(said.contains(&words), "{words} is not in:\n{said}");
    }
    assert!(!said.contains("nothing to remove"), "{said}");
    let of_sets = said.lines().filter(|line| line.contains("ipset"));
    assert!(of_sets.count() <= 2, "each set has a line:\n{said}");
    assert_eq!(everything(&lab), before);
}

/// Whatever it was that is there: what cannot be seen, or not be removed, is no success.
#[test]
fn cleanup_without_tools_says_what_stays_and_fails() {
    if !available(&["iptables-nft", "iptables-legacy", "nft", "unshare"]) {
        return;
    }
    let lab = cluster::up("toolless");
    let program = binary().to_string_lossy().into_owned();
    let cleanup = || {
        // A mount of nobody else's hides them.
        let hidden = format!("mount -t tmpfs none /usr/sbin && exec {program} --cleanup");
        let finished = lab.exec(NODE, &["unshare", "--mount", "sh", "-c", &hidden]);
        let finished = finished.unwrap_or_else(|error| panic!("{}", error.chain()));
        (finished.status.code(), finished.stderr)
    };
    let (code, said) = cleanup();
    assert_eq!(code, Some(0), "there is nothing:\n{said}");

    shell(&lab, "iptables-nft -t filter -N KUBE-FORWARD");
    let (code, said) = cleanup();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no iptables-nft to remove them"), "{said}");

    shell(&lab, "nft delete table ip filter");
    shell(&lab, LEFT_ON_LEGACY);
    let (code, said) = cleanup();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no iptables-legacy that works"), "{said}");
}

#[test]
fn init_only_writes_no_rule() {
    if !available(&["iptables-nft", "iptables-legacy"]) {
        return;
    }
    let lab = cluster::up("init");
    let before = everything(&lab);
    run(&lab, &["--init-only"]);
    assert_eq!(everything(&lab), before);
    let localnet = lab
        .must_exec(NODE, &["cat", "/proc/sys/net/ipv4/conf/all/route_localnet"])
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(localnet.trim(), "1");
}
