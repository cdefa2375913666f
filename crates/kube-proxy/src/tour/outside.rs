//! Who asks from outside: a node port, why its source is rewritten, and how to keep it.

use super::inside::masqueraded;
use super::stage::Stage;
use super::step::{Step, lines};
use super::{Mode, one_of_two, table};
use anyhow::{Context, Result};
use lab::Signal;
use lab::seed::{CLIENT, NODE_A};
use serde_json::{Value, json};

/// The node port of spring-test on each node.
const NODE_PORTS: [&str; 2] = ["192.168.50.238:31080", "192.168.50.239:31080"];

/// The client.
const CLIENT_IP: &str = "192.168.50.10";

/// Counts what the client sees of answers that it never asked for, and what it says to them.
const WATCH: &str = "nft -f - <<END
table ip tour {
  chain in {
    type filter hook input priority 0;
    ip saddr 10.244.2.3 tcp sport 8080 tcp flags & (syn | ack) == syn | ack counter
  }
  chain out {
    type filter hook output priority 0;
    ip daddr 10.244.2.3 tcp dport 8080 tcp flags & rst == rst counter
  }
}
END";

/// A node port.
pub fn node_port(stage: &mut Stage) -> Result<Step> {
    let marked = match stage.mode {
        Mode::Iptables => "marked in KUBE-EXT-... and masqueraded in KUBE-POSTROUTING",
        Mode::Nftables => "marked on its way to the endpoints and masqueraded in the chain masquerading",
    };
    let mut step = Step::new(
        "A client outside asks a node port, and the pod sees the node",
        &format!(
            "192.168.50.10 knows nothing of cluster IPs. It asks node-a at port 31080, and gets an answer from either pod, \
             also from the one on node-b. The packet is {marked}, so the pod sees node-a as its client."
        ),
    );
    let heard = stage.ask(&mut step, CLIENT, NODE_PORTS[0], 40)?;
    one_of_two(&mut step, &heard, "spring-test-a, spring-test-b");
    masqueraded(&mut step, &heard.clients_at(|_| true));
    table::of_node_ports(stage, &mut step)?;
    step.look_at("The price of it: the pod's log has a node's address where the client's should be.");
    Ok(step)
}

/// Why the source is rewritten.
pub fn why_snat(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "Why SNAT? Without it the client refuses the answer",
        "kube-proxy on node-a is paused, so that it repairs nothing, and the rule for the source is taken out. \
         The client asks the same node port again. What goes to the pod on node-a comes back through node-a, which \
         translates it. The pod on node-b, however, answers the client directly, from 10.244.2.3. The client has asked \
         192.168.50.238 and knows no 10.244.2.3: it says reset, and waits on.",
    );
    stage.quietly(CLIENT, WATCH)?;
    stage.signal(Signal::STOP)?;
    let command = match stage.mode {
        Mode::Iptables => "iptables -w -t nat -F KUBE-MARK-MASQ",
        Mode::Nftables => "nft flush chain ip kube-proxy masquerading",
    };
    stage.on_node(&mut step, NODE_A, command)?;
    let heard = stage.ask(&mut step, CLIENT, NODE_PORTS[0], 40)?;
    let who = heard.who();
    step.same("who answers", "nobody, spring-test-a", who);
    step.same(
        "client that spring-test-a saw",
        CLIENT_IP,
        heard.clients_at(|_| true),
    );
    let listed = stage.quietly(CLIENT, "nft list table ip tour")?;
    let shown = lines(&listed).into_iter().filter(|line| line.contains("counter"));
    step.ran(
        &format!(
            "ip netns exec {} nft list table ip tour",
            stage.lab.topology().namespace_name(CLIENT)
        ),
        shown.map(|line| line.trim().to_owned()).collect(),
    );
    let [answers, resets] = counters(&listed)?;
    step.fact(
        "answers from 10.244.2.3 at the client",
        "some",
        answers,
        answers > 0,
    );
    step.fact(
        "of these, refused by the client (RST)",
        "all",
        resets,
        resets >= answers && resets > 0,
    );
    stage.quietly(CLIENT, "nft delete table ip tour")?;
    stage.signal(Signal::CONT)?;
    stage.wait_for_rules()?;
    let heard = stage.ask(&mut step, CLIENT, NODE_PORTS[0], 40)?;
    let both = "spring-test-a, spring-test-b";
    step.same("who answers once kube-proxy has put it back", both, heard.who());
    step.look_at(
        "kube-proxy went on, found that its rule was missing and put it back: the last requests are answered by both again. \
         SNAT is what makes the answer come back through the node that translated the question.",
    );
    Ok(step)
}

/// The two numbers behind `counter packets`.
fn counters(listed: &str) -> Result<[u64; 2]> {
    let mut found = listed.split("counter packets ").skip(1);
    let mut next = || {
        let number = found.next()?.split_whitespace().next()?;
        number.parse().ok()
    };
    let read = next().zip(next()).map(|(answers, resets)| [answers, resets]);
    read.with_context(|| format!("no counters in {listed}"))
}

/// externalTrafficPolicy: Local.
pub fn policy_local(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "externalTrafficPolicy: Local keeps the client's address",
        "With the policy Local a node sends what comes from outside only to its own pods. Their answers pass this node \
         anyway, so nothing needs to be masqueraded, and the pod sees the real client. The other side of it: chance no \
         longer reaches pods of other nodes, and a node without a pod drops what comes.",
    );
    set_policy(stage, "Local")?;
    for (to, pod) in NODE_PORTS.iter().zip(["spring-test-a", "spring-test-b"]) {
        let heard = stage.ask(&mut step, CLIENT, to, 20)?;
        step.same(&format!("who answers at {to}"), pod, heard.who());
        step.same("client that it saw", CLIENT_IP, heard.clients_at(|_| true));
    }
    if stage.mode == Mode::Iptables {
        stage.on_node(
            &mut step,
            NODE_A,
            "iptables -w -L KUBE-EXT-HKCWQRYAXFH7ZPX3 -n -t nat",
        )?;
        stage.on_node(
            &mut step,
            NODE_A,
            "iptables -w -L KUBE-SVL-HKCWQRYAXFH7ZPX3 -n -t nat",
        )?;
    }
    set_policy(stage, "Cluster")?;
    step.look_at(match stage.mode {
        Mode::Iptables => {
            "KUBE-EXT-... no longer begins with KUBE-MARK-MASQ and ends in KUBE-SVL-... (local) instead of KUBE-SVC-.... \
             What pods and the node itself ask there is still served by all pods: policies are for outside."
        }
        Mode::Nftables => "nft list set ip kube-proxy service-policy-local, and nodeport-policy-local, name such Services.",
    });
    Ok(step)
}

fn set_policy(stage: &mut Stage, policy: &str) -> Result<()> {
    stage.change(|items| {
        let is_it =
            |item: &&mut Value| item["kind"] == "Service" && item["metadata"]["name"] == "spring-test";
        for service in items.iter_mut().filter(is_it) {
            service["spec"]["externalTrafficPolicy"] = json!(policy);
        }
    })
}
