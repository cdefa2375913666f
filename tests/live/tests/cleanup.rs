//! `--cleanup` takes out exactly what the daemon wrote, and `--init-only` writes no rule.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
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

fn shell(lab: &Lab, script: &str) {
    lab.must_exec(NODE, &["sh", "-e", "-c", script])
        .unwrap_or_else(|error| panic!("{}", error.chain()));
}

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

fn run(lab: &Lab, flags: &[&str]) {
    let program = binary().to_string_lossy();
    let mut words = vec![program.as_ref()];
    words.extend_from_slice(flags);
    lab.must_exec(NODE, &words)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
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
