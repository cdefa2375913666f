//! Faults of hosts as kinds: overlays, ways back and policy routing, in the shapes that network plugins and VPNs give them.

#[path = "support/small_host.rs"]
mod small_host;

use explain::assemble_host;
use explain::doctor::{Patient, examine, main_rules};
use iptables::ast::TableName;
use serde_json::{Value, json};
use small_host::{Host, NONE};

#[test]
fn overlays_are_told_of_where_other_nodes_are_known() {
    let node = |name: &str, ip: &str| json!({"kind": "Node", "metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
    let jump = Host::healthy().filter;
    let host = |rules: &str, objects: Vec<Value>| {
        let filter: &'static str = format!("{jump}{rules}").leak();
        Host {
            filter,
            objects,
            ..Host::healthy()
        }
        .told()
    };
    let nodes = || vec![node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")];
    let reject = "-A INPUT -p udp -m udp --dport 6081 -j REJECT --reject-with icmp-port-unreachable\n";
    assert_eq!(host(reject, nodes()), ["overlay-dropped"]);
    assert_eq!(host(reject, Vec::new()), NONE);
    assert_eq!(
        host(&format!("-A INPUT -s 192.0.2.0/24 -j ACCEPT\n{reject}"), nodes()),
        NONE
    );
}

/// A node may have an address for the world beside the one that the overlay uses, and the overlay's port is a setting.
#[test]
fn an_overlay_comes_from_one_of_a_nodes_addresses_to_the_port_that_is_open() {
    let node = |name: &str, own: &str, public: &str| {
        json!({"kind": "Node", "metadata": {"name": name}, "status": {"addresses": [
            {"type": "InternalIP", "address": own}, {"type": "ExternalIP", "address": public}]}})
    };
    let jump = Host::healthy().filter;
    let host = |rules: &str, native: &'static str, facts: Value, public: &str| {
        let filter: &'static str = format!("{jump}{rules}").leak();
        let objects = vec![
            node("node-a", "192.0.2.11", "203.0.113.11"),
            node("node-b", "192.0.2.12", public),
        ];
        Host {
            filter,
            native,
            facts,
            objects,
            ..Host::healthy()
        }
        .told()
    };
    let far = "203.0.113.12";
    let (drop, own) = (
        "-A INPUT -p udp -j DROP\n",
        "-A INPUT -s 192.0.2.0/24 -j ACCEPT\n",
    );
    assert_eq!(host(drop, "", json!({}), far), ["overlay-dropped"]);
    assert_eq!(host(&format!("{own}{drop}"), "", json!({}), far), NONE);
    // The other family carries no overlay.
    let six =
        "table ip6 filter {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}\n";
    let both = json!({"interfaces": [
        {"name": "eth0", "addresses": ["192.0.2.11/24", "2001:db8::11/64"]}, {"name": "geneve_sys", "type": "geneve", "addresses": []},
        {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]}],
        "routes": ["default via 192.0.2.1 dev eth0", "192.0.2.0/24 dev eth0", "10.244.1.0/24 dev cni0", "10.244.2.0/24 via 192.0.2.12 dev eth0",
            "2001:db8::/64 dev eth0", "default via fe80::1 dev eth0"]});
    assert_eq!(host("", six, both, "2001:db8::12"), NONE);
    let open = |port: u16| json!({"listening": [{"proto": "udp", "address": "0.0.0.0", "port": port}]});
    let usual = "-A INPUT -p udp -m udp --dport 6081 -j DROP\n";
    assert_eq!(host(usual, "", open(6081), far), ["overlay-dropped"]);
    assert_eq!(host(usual, "", open(8472), far), NONE);
    let other = "-A INPUT -p udp -m udp --dport 8472 -j DROP\n";
    assert_eq!(host(other, "", open(8472), far), ["overlay-dropped"]);
    assert_eq!(host(drop, "", open(53), far), NONE);
}

#[test]
fn the_port_of_an_overlay_is_known_by_its_interface() {
    let node = |name: &str, ip: &str| json!({"kind": "Node", "metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
    let told = |name: &str, kind: &str, port: u16| {
        let reject = format!(
            "{}-A INPUT -p udp -m udp --dport {port} -j DROP\n",
            Host::healthy().filter
        );
        let interfaces = json!([
            {"name": "eth0", "addresses": ["192.0.2.11/24"]},
            {"name": name, "type": kind, "addresses": []},
            {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]},
        ]);
        Host {
            filter: reject.leak(),
            facts: json!({"interfaces": interfaces}),
            objects: vec![node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")],
            ..Host::healthy()
        }
        .told()
    };
    // As these programs name them.
    for (name, kind, port) in [
        ("flannel.1", "vxlan", 8472),
        ("cilium_vxlan", "vxlan", 8472),
        ("cilium_geneve", "geneve", 6081),
        ("cilium_wg0", "wireguard", 51871),
        ("vxlan.calico", "vxlan", 4789),
        ("wireguard.cali", "wireguard", 51820),
        ("vxlan_sys_4789", "vxlan", 4789),
        ("vxlan_sys_4799", "vxlan", 4799),
        ("vxlan-6784", "vxlan", 6784),
        ("genev_sys_6081", "geneve", 6081),
        ("flannel-wg", "wireguard", 51820),
        ("antrea-wg0", "wireguard", 51820),
    ] {
        assert_eq!(told(name, kind, port), ["overlay-dropped"], "{name}");
        assert_eq!(told(name, kind, port + 1), NONE, "{name}");
    }
}

/// Network plugins have an overlay for each family of the nodes' addresses, beside each other.
#[test]
fn an_overlay_between_ipv6_addresses_is_told_beside_one_that_works() {
    let node = |name: &str, last: u8| {
        json!({"kind": "Node", "metadata": {"name": name}, "status": {"addresses": [
            {"type": "InternalIP", "address": format!("192.0.2.{last}")}, {"type": "InternalIP", "address": format!("2001:db8::{last}")}]}})
    };
    let told = |v4: (&str, &str), v6: (&str, &str), dropped: u16| {
        let six = format!(
            "table ip6 filter {{\n\tchain input {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\tudp dport {dropped} drop\n\t}}\n}}\n"
        );
        Host {
            native: six.leak(),
            facts: json!({"interfaces": [
                {"name": "eth0", "addresses": ["192.0.2.11/24", "2001:db8::11/64"]},
                {"name": v4.0, "type": v4.1, "addresses": []}, {"name": v6.0, "type": v6.1, "addresses": []},
                {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]}],
                "routes": ["default via 192.0.2.1 dev eth0", "192.0.2.0/24 dev eth0", "10.244.1.0/24 dev cni0", "10.244.2.0/24 via 192.0.2.12 dev eth0",
                    "2001:db8::/64 dev eth0", "default via fe80::1 dev eth0"]}),
            objects: vec![node("node-a", 11), node("node-b", 12)],
            ..Host::healthy()
        }
        .told()
    };
    for (v4, v6, port) in [
        (("vxlan.calico", "vxlan"), ("vxlan-v6.calico", "vxlan"), 4789),
        (
            ("wireguard.cali", "wireguard"),
            ("wg-v6.cali", "wireguard"),
            51821,
        ),
        (("flannel.1", "vxlan"), ("flannel-v6.1", "vxlan"), 8472),
        (("flannel-wg", "wireguard"), ("flannel-wg-v6", "wireguard"), 51821),
    ] {
        assert_eq!(told(v4, v6, port), ["overlay-dropped"], "{}", v6.0);
        assert_eq!(told(v4, v6, port - 1), NONE, "{}", v6.0);
    }
}

/// The main table's, and these of other tables.
fn routes<'t>(tables: &[&'t str]) -> Vec<&'t str> {
    let main = [
        "default via 192.0.2.1 dev eth0",
        "192.0.2.0/24 dev eth0",
        "10.244.1.0/24 dev cni0",
        "10.244.2.0/24 via 192.0.2.12 dev eth0",
    ];
    [&main, tables].concat()
}

/// Network plugins route pods' packets by their source or by marks, and have interfaces of the machine for pods alone.
#[test]
fn strict_filtering_is_told_where_packets_have_another_way_back() {
    let told = |interfaces: &Value, strict: &[&str], rules: Value, tables: &[&str]| {
        let mut all = json!([{"name": "eth0", "addresses": ["192.0.2.11/24"]}, {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]}]);
        all.as_array_mut()
            .expect("a list")
            .extend(interfaces.as_array().expect("a list").clone());
        let routes = routes(tables);
        let mut sysctl = json!({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.eth0.rp_filter": 0, "net.ipv4.conf.eth1.rp_filter": 2});
        for name in strict {
            sysctl[format!("net.ipv4.conf.{name}.rp_filter")] = 1.into();
        }
        let facts = json!({"interfaces": all, "routes": routes, "rules": rules, "sysctl": sysctl});
        let told = Host {
            facts,
            ..Host::healthy()
        }
        .told();
        told.into_iter().filter(|cause| *cause == "rp-filter").count()
    };
    let one = json!([]);
    let two = json!([{"name": "eth1", "addresses": ["192.0.2.90/24"]}]);
    let by_pod = json!([
        "512: from all to 10.244.9.9 lookup main",
        "1024: from all fwmark 0x80/0x80 lookup main",
        "1536: from 10.244.9.9 lookup 2"
    ]);
    let second = ["default via 192.0.2.1 dev eth1 table 2"];
    // Amazon's plugin, and Cilium with Amazon's interfaces: the second is for pods, and strict by default.
    assert_eq!(told(&two, &["eth1"], by_pod.clone(), &second), 0);
    assert_eq!(told(&two, &["eth1"], json!([]), &second), 0, "no pod has it yet");
    // By the first one come packets for pods that answer by the second: the plugin has it loose for that.
    assert_eq!(told(&two, &["eth0", "eth1"], by_pod, &second), 1);
    // Cilium's marks for its proxy, and no way elsewhere.
    let by_mark = json!([
        "9: from all fwmark 0x200/0xf00 lookup 2004",
        "10: from all fwmark 0xa00/0xf00 lookup 2005",
        "100: from all lookup local"
    ]);
    let to_proxy = [
        "local default dev lo table 2004",
        "default via 10.0.0.120 dev cilium_host table 2005",
    ];
    assert_eq!(told(&one, &["eth0"], by_mark, &to_proxy), 0);
    // A VPN for all that carries no mark: what comes in by eth0 would go back by it.
    let vpn = json!(["32765: not from all fwmark 0xca6c lookup 51820"]);
    assert_eq!(told(&one, &["eth0"], vpn, &["default dev vpn0 table 51820"]), 1);
    // A second uplink of the machine's own, with or without a table for its address: pods do not answer by that.
    assert_eq!(told(&two, &["eth1"], json!([]), &[]), 1);
    let by_own = json!(["100: from 192.0.2.90 lookup 2"]);
    assert_eq!(told(&two, &["eth1"], by_own, &second), 1);
}

/// Of a dump of table nat alone nobody can say what table filter drops.
#[test]
fn loopback_is_open_when_nothing_drops_and_not_when_a_table_was_not_given() {
    let told = |tables: &[TableName], mangle: &'static str, native: &'static str| {
        let host = Host {
            mangle,
            native,
            facts: json!({"sysctl": {"net.ipv4.conf.all.route_localnet": 1}}),
            ..Host::healthy()
        };
        let (mut parts, mut dumps) = host.parts();
        for saved in &mut dumps {
            saved.rules.tables.retain(|name, _| tables.contains(name));
        }
        parts.saved = main_rules(&dumps);
        let world = assemble_host(parts).expect("good parts");
        let report = examine(&Patient::new(world, dumps, Vec::new()));
        let found = report.findings.iter();
        found
            .filter(|finding| finding.cause.as_str() == "localnet-exposed")
            .count()
    };
    let all = [TableName::Filter, TableName::Nat, TableName::Mangle];
    assert_eq!(told(&all, "", ""), 1);
    assert_eq!(told(&[TableName::Nat], "", ""), 0);
    assert_eq!(told(&[TableName::Nat, TableName::Mangle], "", ""), 0);
    let guard = "-A PREROUTING ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\n";
    assert_eq!(told(&all, guard, ""), 0, "whichever table drops");
    let list = "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
    assert_eq!(told(&[TableName::Nat], "", list), 1, "all tables were listed");
}

#[test]
fn policy_routing_is_told_when_it_meets_every_packet_before_the_main_table() {
    let told = |rules: Value, tables: &[&str]| {
        let routes = routes(tables);
        let facts = json!({"rules": rules, "routes": routes});
        Host {
            facts,
            ..Host::healthy()
        }
        .told()
    };
    let tunnel = ["default dev wg0 table 52"];
    assert_eq!(
        told(json!(["5270: from all lookup 52"]), &tunnel),
        ["policy-route"]
    );
    assert_eq!(told(json!(["40000: from all lookup 52"]), &tunnel), NONE);
    assert_eq!(told(json!(["5270: from 10.9.9.9 lookup 52"]), &tunnel), NONE);
    let suppressed = json!([
        "100: from all lookup main suppress_prefixlength 0",
        "101: not from all fwmark 0x80000 lookup 52"
    ]);
    assert_eq!(told(suppressed, &tunnel), NONE);
    // A network plugin's own table has its own pods' networks, one by one.
    let of_plugin = [
        "10.244.2.0/24 dev wireguard.cali table 1",
        "throw 10.244.1.0/24 table 1",
    ];
    let marked = json!(["99: not from all fwmark 0x100000/0x100000 lookup 1"]);
    assert_eq!(told(marked.clone(), &of_plugin), NONE);
    let whole = ["10.244.0.0/16 dev wg0 table 1"];
    assert_eq!(told(marked, &whole), ["policy-route"]);
    let passed_over = ["default dev wg0 table 52", "throw 10.244.0.0/16 table 52"];
    assert_eq!(told(json!(["5270: from all lookup 52"]), &passed_over), NONE);
}
