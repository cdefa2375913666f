//! A small host of kube-proxy's, to be changed in one thing or another.

#![allow(dead_code, reason = "each test file uses a part of it")]

use explain::doctor::{Backend, Patient, Report, Saved, examine, main_rules};
use explain::{Explanation, HostFacts, Parts, Question, assemble, assemble_host, explain};
use iptables::parse;
use model::Family;
use serde_json::{Value, json};

/// A host with a few rules of kube-proxy, and others' rules around them.
pub struct Host {
    pub filter: &'static str,
    pub nat: &'static str,
    pub mangle: &'static str,
    pub native: &'static str,
    pub facts: Value,
    pub objects: Vec<Value>,
}

impl Host {
    pub fn healthy() -> Host {
        Host {
            filter: "-A FORWARD -j KUBE-FORWARD\n",
            nat: "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n",
            mangle: "",
            native: "",
            facts: json!({}),
            objects: Vec::new(),
        }
    }

    pub fn report(&self) -> Report {
        let (parts, dumps) = self.parts();
        let world = assemble_host(parts).expect("good parts");
        examine(&Patient::new(world, dumps, Vec::new()))
    }

    pub fn answer(&self, from: &str, to: &str) -> Explanation {
        let question = Question {
            from: from.parse().expect("a sender"),
            to: to.parse().expect("a destination"),
            protocol: Some(model::Protocol::Tcp),
            in_interface: None,
        };
        explain(
            &assemble(self.parts().0, &question).expect("good parts"),
            &question,
        )
    }

    pub fn parts(&self) -> (Parts, Vec<Saved>) {
        let dump = format!(
            "*mangle\n:PREROUTING ACCEPT [0:0]\n{}COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
             :KUBE-FORWARD - [0:0]\n{}-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n\
             :OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
             :KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-EXT-IV - [0:0]\n:KUBE-SVC-IV - [0:0]\n:KUBE-SEP-IV - [0:0]\n{}\
             -A KUBE-SERVICES -d 10.96.8.10/32 -p tcp -m comment --comment \"shop/cart:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-IV\n\
             -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n\
             -A KUBE-NODEPORTS -p tcp -m comment --comment \"shop/cart:http\" -m tcp --dport 30080 -j KUBE-EXT-IV\n\
             -A KUBE-EXT-IV -j KUBE-MARK-MASQ\n-A KUBE-EXT-IV -j KUBE-SVC-IV\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n\
             -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MASQUERADE\n\
             -A KUBE-SVC-IV ! -s 10.244.0.0/16 -d 10.96.8.10/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ\n-A KUBE-SVC-IV -j KUBE-SEP-IV\n\
             -A KUBE-SEP-IV -p tcp -m comment --comment \"shop/cart:http\" -m tcp -j DNAT --to-destination 10.244.2.9:8080\nCOMMIT\n",
            self.mangle, self.filter, self.nat
        );
        let parsed = parse::save(&dump, Family::V4);
        assert_eq!(parsed.opaque, []);
        let dumps = vec![Saved {
            backend: Backend::NfTables,
            family: Family::V4,
            rules: parsed.ruleset,
            unsupported: 0,
        }];
        let mut facts = json!({
            "hostname": "node-a",
            "interfaces": [
                {"name": "eth0", "addresses": ["192.0.2.11/24"]},
                {"name": "vx0", "type": "vxlan", "addresses": []},
                {"name": "geneve_sys", "type": "geneve", "addresses": []},
                {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]}],
            "routes": ["default via 192.0.2.1 dev eth0", "192.0.2.0/24 dev eth0", "10.244.1.0/24 dev cni0", "10.244.2.0/24 via 192.0.2.12 dev eth0"],
        });
        for (field, value) in self.facts.as_object().into_iter().flatten() {
            facts[field] = value.clone();
        }
        let native =
            (!self.native.is_empty()).then(|| nftables::parse::ruleset(self.native).expect("a ruleset"));
        let parts = Parts {
            documents: self.objects.clone(),
            facts: HostFacts::read(&facts).expect("good facts"),
            saved: main_rules(&dumps),
            native,
            ..Parts::default()
        };
        (parts, dumps)
    }

    /// The kinds of what is more than a remark.
    pub fn told(&self) -> Vec<&'static str> {
        let report = self.report();
        let all = report.findings.iter();
        let real = all.filter(|finding| finding.severity > explain::Severity::Remark);
        real.map(|finding| finding.cause.as_str()).collect()
    }
}

/// Nothing to tell.
pub const NONE: [&str; 0] = [];
