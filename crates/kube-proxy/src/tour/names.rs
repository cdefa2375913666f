//! Names: how a pod finds a Service, and that its look-ups are traffic to a Service themselves.

use super::stage::{Stage, replica};
use super::step::{Step, joined};
use super::{APP, Mode, POD, POD_IP, table};
use anyhow::Result;
use lab::seed::{DNS, NODE_A};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Where a name leads, for whoever looks it up.
const SPRING_TEST: &str = "10.1.68.7";

/// The three names of a Service in the pod's own namespace, each with the names that the resolver tries for it.
const NAMES: [(&str, &[&str]); 3] = [
    ("spring-test", &["spring-test.default.svc.cluster.local"]),
    (
        "spring-test.default",
        &[
            "spring-test.default.default.svc.cluster.local",
            "spring-test.default.svc.cluster.local",
        ],
    ),
    (
        "spring-test.default.svc.cluster.local",
        &[
            "spring-test.default.svc.cluster.local.default.svc.cluster.local",
            "spring-test.default.svc.cluster.local.svc.cluster.local",
            "spring-test.default.svc.cluster.local.cluster.local",
            "spring-test.default.svc.cluster.local",
        ],
    ),
];

/// The three names.
pub fn three_names(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "A pod looks up a Service by its three names",
        "A pod knows Services by name. Its resolver asks 10.1.0.10, the cluster IP of kube-dns, behind which a DNS server \
         runs in three pods; it answers from the same objects that kube-proxy reads. Names with fewer than five dots \
         (ndots:5) are tried with each ending of the search list first, so the shortest name takes one question and the \
         full one four.",
    );
    stage.in_pod(&mut step, POD, "cat /etc/resolv.conf")?;
    for (name, tried) in NAMES {
        stage.dns.new_queries();
        let printed = stage.in_pod(&mut step, POD, &format!("getent ahostsv4 {name}"))?;
        let found = printed.split_whitespace().next().unwrap_or("nothing");
        step.same(&format!("address of {name}"), SPRING_TEST, found);
        let asked: BTreeSet<String> = stage
            .dns
            .new_queries()
            .into_iter()
            .map(|query| query.name)
            .collect();
        let as_told = asked
            .iter()
            .map(String::as_str)
            .eq(tried.iter().copied().collect::<BTreeSet<_>>());
        step.fact(
            "names that DNS was asked for on the way",
            tried.len(),
            asked.len(),
            as_told,
        );
    }
    step.look_at(
        "A dot at the end (getent ahostsv4 spring-test.default.svc.cluster.local.) makes a name full: one question instead \
         of four. Outside names have few dots, too: every pod that asks for example.org asks the cluster three times in \
         vain first.",
    );
    Ok(step)
}

/// UDP and TCP.
pub fn over_both_protocols(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "The look-ups cross the rules for UDP 53 and for TCP 53",
        "No host has the address 10.1.0.10: it stands in rules only. A question by UDP and one by TCP are two ports of one \
         Service, and each has a rule and chains of its own. The pod asks once by each (use-vc makes the resolver use TCP).",
    );
    stage.dns.new_queries();
    let before = dns_packets(stage)?;
    for options in ["RES_OPTIONS=", "RES_OPTIONS=use-vc"] {
        let command = format!("env {options} getent ahostsv4 spring-test");
        let printed = stage.in_pod(&mut step, POD, &command)?;
        let found = printed.split_whitespace().next().unwrap_or("nothing");
        let by = if options.ends_with("use-vc") { "TCP" } else { "UDP" };
        step.same(&format!("address, asked by {by}"), SPRING_TEST, found);
    }
    if stage.mode == Mode::Iptables {
        stage.on_node(&mut step, NODE_A, "iptables -w -L KUBE-SERVICES -n -v -t nat")?;
        let after = dns_packets(stage)?;
        for ((protocol, before), after) in ["UDP", "TCP"].iter().zip(before).zip(after) {
            let what = format!("connections that met the {protocol} rule of {DNS}");
            let met = after - before;
            step.fact(&what, "at least 1", met, met > 0);
        }
    }
    let clients: BTreeSet<_> = stage.dns.new_queries().iter().map(|query| query.client).collect();
    step.same("clients that the DNS servers saw", POD_IP, joined(clients));
    step.look_at(match stage.mode {
        Mode::Iptables => {
            "The first column counts packets that a rule took. In the table nat only the first packet of a connection is \
             looked at: what follows is translated as the first one was. A look-up by UDP is a connection, too, as far \
             as the kernel is concerned."
        }
        Mode::Nftables => {
            "Protocol and port are part of the key: nft list map ip kube-proxy service-slot-0 shows an element for udp . 53 \
             and one for tcp . 53."
        }
    });
    Ok(step)
}

/// Packets at the rules for kube-dns by UDP and by TCP; none in nftables mode, which does not count.
fn dns_packets(stage: &Stage) -> Result<[u64; 2]> {
    if stage.mode == Mode::Nftables {
        return Ok([0; 2]);
    }
    let of = |protocol: &str| table::packets(stage, "nat", &format!("{protocol} dpt:53"));
    Ok([of("udp")?, of("tcp")?])
}

/// A new Service.
pub fn new_service(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "A Service is made, and rules and DNS follow",
        "The Service app and an EndpointSlice with two pods are put into the cluster (here: into the folder of manifests \
         that kube-proxy and DNS read). Before that, its name is nobody's.",
    );
    let command = "getent ahostsv4 app";
    let before = stage.in_pod(&mut step, POD, command)?;
    step.same(
        "address of app before",
        "nothing",
        joined(before.split_whitespace().take(1)),
    );
    stage.change(|items| {
        items.push(service());
        items.push(slice(2));
    })?;
    let after = stage.in_pod(&mut step, POD, command)?;
    step.same(
        "address of app",
        "10.1.33.10",
        joined(after.split_whitespace().take(1)),
    );
    let heard = stage.ask(&mut step, POD, APP, 1)?;
    let who = heard.who();
    step.fact(
        "who answers there",
        "app-0 or app-1",
        &who,
        ["app-0", "app-1"].contains(&&*who),
    );
    step.look_at("A Service is two things in two places that know nothing of each other: a name in DNS, and rules on every node.");
    Ok(step)
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "app"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.1.33.10", "clusterIPs": ["10.1.33.10"],
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}]},
    })
}

/// The slice of `app` with so many replicas.
pub fn slice(replicas: usize) -> Value {
    let endpoints = (0..replicas).map(|number| {
        let (address, node) = replica(number);
        json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}})
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "app-1", "labels": {"kubernetes.io/service-name": "app"}},
        "endpoints": endpoints.collect::<Vec<_>>(), "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
    })
}
