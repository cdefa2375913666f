//! `kube-proxy verify` on a live host: what is damaged by hand is named, a daemon repairs it, and then nothing differs.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NFTABLES_MODE, NODE, shell, web};
use live::daemon::{Daemon, PATIENCE, Setup, binary, configuration};
use live::manifests::Manifests;
use live::within;
use serde_json::{Value, json};

/// A host whose daemon starts and ends as the test wants.
struct Host<'a> {
    lab: &'a Lab,
    manifests: &'a Manifests,
    mode: &'static str,
}

impl Host<'_> {
    /// A daemon that has brought everything into the kernel.
    fn daemon(&self) -> Daemon {
        let mut setup = Setup::new(self.lab, NODE, self.manifests);
        setup.config = configuration(&json!({"mode": self.mode}));
        let daemon = setup.start();
        let both = within(PATIENCE, || {
            daemon.log().matches("rules are in sync").count() >= 2
        });
        assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
        daemon
    }

    /// The exit status and what was said.
    fn verify(&self) -> (i64, Value) {
        let said = shell(
            self.lab,
            &format!(
                "set +e; {} verify --manifests {} --node {NODE} --proxy-mode {} --cluster-cidr 10.244.0.0/16 \
                 --output json; echo \"status $?\"",
                binary().display(),
                self.manifests.path().display(),
                self.mode
            ),
        );
        let (json, status) = said.rsplit_once("status ").expect("the status was printed");
        let status = status.trim().parse().expect("a number");
        (
            status,
            serde_json::from_str(json).unwrap_or_else(|err| panic!("{err}: {said}")),
        )
    }

    /// Whoever owns what differs, what it is and how, in one line each.
    fn told(&self) -> (i64, Vec<String>) {
        let (status, verdict) = self.verify();
        let mut told = Vec::new();
        for family in verdict["families"].as_array().expect("families") {
            for one in family["differences"].as_array().expect("differences") {
                let owner = one["owner"]["port"].as_str().or(one["owner"]["kind"].as_str());
                let word = |name: &str| one[name].as_str().unwrap_or_default();
                let signs: Vec<&str> = one["lines"]
                    .as_array()
                    .expect("lines")
                    .iter()
                    .filter_map(|line| line["sign"].as_str())
                    .collect();
                let (table, name, what) = (word("table"), word("name"), word("what"));
                told.push(format!(
                    "{} {table} {name} {what} {}",
                    owner.unwrap_or_default(),
                    signs.join(",")
                ));
            }
        }
        (status, told)
    }

    fn is_whole(&self, after: &str) {
        let (status, told) = self.told();
        assert_eq!((status, told), (0, Vec::new()), "after {after}");
    }

    /// Each harm is named in these words, repaired by a daemon, and then not named any more.
    fn each_is_named_and_repaired(&self, harms: &[(&str, &str)]) {
        self.daemon().kill();
        self.is_whole("the first load");
        for (harm, words) in harms {
            shell(self.lab, harm);
            let (status, told) = self.told();
            assert_eq!(status, 1, "{harm}: {told:#?}");
            assert!(
                told.iter().any(|line| line.starts_with(words)),
                "{harm}: {words:?} is not in {told:#?}"
            );
            assert!(told.len() <= 3 || harm.contains("-F\n"), "{harm}: {told:#?}");
            self.daemon().kill();
            self.is_whole(harm);
        }
    }
}

#[test]
fn in_iptables_mode_each_harm_is_named_and_is_what_the_daemon_repairs() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("verifyi"), Manifests::new());
    manifests.put("web.json", &web(3));
    let host = Host {
        lab: &lab,
        manifests: &manifests,
        mode: "iptables",
    };
    let endpoint = "C=$(iptables -t nat -S | grep -o 'KUBE-SEP-[A-Z0-9]*' | head -n 1); iptables -t nat";
    let list = "C=$(iptables -t nat -S | grep -o 'KUBE-SVC-[A-Z0-9]*' | head -n 1); iptables -t nat";
    host.each_is_named_and_repaired(&[
        (
            "iptables -t nat -F KUBE-MARK-MASQ",
            "node nat KUBE-MARK-MASQ changed missing",
        ),
        (
            "iptables -t nat -F PREROUTING",
            "node nat PREROUTING changed missing",
        ),
        (
            "iptables -F KUBE-FORWARD",
            "node filter KUBE-FORWARD changed missing,missing,missing",
        ),
        (
            "iptables -t nat -A KUBE-POSTROUTING -j ACCEPT",
            "node nat KUBE-POSTROUTING changed extra",
        ),
        (
            "iptables -t nat -I KUBE-SERVICES -s 203.0.113.7 -j ACCEPT",
            "nobody nat KUBE-SERVICES changed extra",
        ),
        (
            "iptables -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA",
            "nobody nat KUBE-SVC-AAAAAAAAAAAAAAAA extra",
        ),
        (&format!("{endpoint} -F $C"), "default/web"),
        (&format!("{list} -D $C 1"), "default/web"),
        (
            "iptables -t nat -D KUBE-SERVICES 1",
            "default/web:p nat KUBE-SERVICES changed missing",
        ),
        (
            "iptables -t mangle -X KUBE-PROXY-CANARY",
            "node mangle KUBE-PROXY-CANARY missing",
        ),
    ]);
    // What is not ours is no difference, wherever it is.
    shell(
        &lab,
        "iptables -I FORWARD 1 -s 203.0.113.7 -j ACCEPT; iptables -t nat -N ELSEWHERE",
    );
    shell(
        &lab,
        "iptables -t nat -A ELSEWHERE -j RETURN; iptables -t nat -I PREROUTING 1 -j ELSEWHERE",
    );
    host.is_whole("a stranger's rules");
}

#[test]
fn in_nftables_mode_each_harm_is_named_and_is_what_the_daemon_repairs() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("verifyn"), Manifests::new());
    manifests.put("web.json", &web(2));
    let host = Host {
        lab: &lab,
        manifests: &manifests,
        mode: "nftables",
    };
    let table = "ip kube-proxy";
    host.each_is_named_and_repaired(&[
        (
            "nft delete element ip kube-proxy service-slot-0 '{ 10.1.0.80 . tcp . 80 }'",
            "default/web:p ip kube-proxy service-slot-0 changed missing",
        ),
        (
            "nft add element ip kube-proxy service-slot-0 '{ 10.9.9.9 . tcp . 80 : 10.8.8.8 . 80 }'",
            "nobody ip kube-proxy service-slot-0 changed extra",
        ),
        (
            &format!(
                "nft delete element {table} service-slot-1 '{{ 10.1.0.80 . tcp . 80 }}'; \
                 nft add element {table} service-slot-1 '{{ 10.1.0.80 . tcp . 80 : 10.8.8.8 . 80 }}'"
            ),
            "default/web:p ip kube-proxy service-slot-1 changed missing,extra",
        ),
        (
            "nft flush set ip kube-proxy cluster-ips",
            "default/web ip kube-proxy cluster-ips changed missing",
        ),
        (
            "nft flush chain ip kube-proxy services",
            "node ip kube-proxy services changed missing",
        ),
        (
            "nft add rule ip kube-proxy nat-prerouting counter accept",
            "node ip kube-proxy nat-prerouting changed extra",
        ),
        ("nft delete table ip kube-proxy", "node ip kube-proxy  missing"),
    ]);
    shell(&lab, "nft add table ip strangers; nft add chain ip strangers c");
    host.is_whole("a stranger's table");
}

#[test]
fn a_table_of_upstreams_layout_is_said_to_be_one_and_compared_by_what_it_does() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("verifyu"), Manifests::new());
    shell(&lab, &format!("nft -f - <<'EOF'\n{NFTABLES_MODE}\nEOF"));
    manifests.put("web.json", &web(2));
    let host = Host {
        lab: &lab,
        manifests: &manifests,
        mode: "nftables",
    };
    let (status, verdict) = host.verify();
    assert_eq!(status, 1, "{verdict:#}");
    let about = verdict["about"].as_str().expect("it says so");
    assert!(about.contains("upstream kube-proxy's"), "{about}");
    // That table serves the cluster IP and no node port, and masquerades everybody.
    let changes = verdict["behaviour"].to_string();
    assert!(
        changes.contains("30080") && changes.contains("10.1.0.80"),
        "{verdict:#}"
    );
}
