//! Who asks from inside: a pod, the node itself, and a pod that meets itself.

use super::stage::Stage;
use super::step::Step;
use super::{Mode, POD, POD_IP, SPRING_TEST, one_of_two, table};
use anyhow::Result;
use lab::seed::NODE_A;

/// `default/kubernetes`, which has no endpoints here.
const NOBODY: &str = "10.96.0.1:443";

/// The addresses that node-a masquerades with, on the wire and before its pods.
pub const NODE_IPS: [&str; 2] = ["192.168.50.238", "10.244.1.1"];

/// A cluster IP from a pod.
pub fn from_a_pod(stage: &mut Stage) -> Result<Step> {
    let way = match stage.mode {
        Mode::Iptables => {
            "PREROUTING sends the first packet through KUBE-SERVICES to the chain of spring-test, whose rules choose one of \
             two endpoints by chance, and the chain of that endpoint puts its address in place of the cluster IP."
        }
        Mode::Nftables => {
            "The chain nat-prerouting sends the first packet to services. The Service's two endpoints lie in slots 0 and 1; \
             a die is thrown, and the address in its slot is put in place of the cluster IP."
        }
    };
    let mut step = Step::new(
        "A pod asks the cluster IP: only the destination is translated",
        &format!("{way} The pod's own address is kept: answers to a pod come back this way by themselves."),
    );
    let heard = stage.ask(&mut step, POD, SPRING_TEST, 40)?;
    one_of_two(&mut step, &heard, "spring-test-a, spring-test-b");
    step.same("client that they saw", POD_IP, heard.clients_at(|_| true));
    table::of_spring_test(stage, &mut step)?;
    step.look_at(match stage.mode {
        Mode::Iptables => {
            "KUBE-SVC-...: the first rule marks who is no pod (!10.244.0.0/16), the second takes half of all \
             connections, the third the rest. KUBE-SEP-...: DNAT to the endpoint; the rule before it is for the hairpin."
        }
        Mode::Nftables => {
            "One element for the Service in each slot, and none of the chains is its own: all Services share them."
        }
    });
    Ok(step)
}

/// A cluster IP from the node, and a service without endpoints there.
pub fn from_the_node(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "The node itself asks: OUTPUT instead of PREROUTING, and a new source",
        "A process of the node (the kubelet, sshd) is no pod, so its packet is marked and masqueraded. Its packets pass \
         OUTPUT, never PREROUTING or FORWARD; so a Service without endpoints has to be refused in OUTPUT, too: \
         default/kubernetes (10.96.0.1:443) has none here.",
    );
    let heard = stage.ask(&mut step, NODE_A, SPRING_TEST, 40)?;
    one_of_two(&mut step, &heard, "spring-test-a, spring-test-b");
    masqueraded(&mut step, &heard.clients_at(|_| true));
    let before = refusals(stage)?;
    let heard = stage.ask(&mut step, NODE_A, NOBODY, 1)?;
    step.same(
        "what the node hears of 10.96.0.1:443",
        "1 x refused: PortUnreachable",
        heard.lines().join(", "),
    );
    refused(stage, &mut step, before)?;
    step.look_at(
        "kubectl exec and curl on a node are not the same question: another hook, another source. What fails for one may \
         work for the other.",
    );
    Ok(step)
}

/// A service without endpoints from a pod.
pub fn without_endpoints(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "A Service without endpoints is refused at once",
        "There is nobody to send the packet to, so it leaves the table nat as it came and meets the table filter in FORWARD. \
         There it is answered with an ICMP error: the client hears no at once, instead of waiting for its own timeout.",
    );
    let before = refusals(stage)?;
    let heard = stage.ask(&mut step, POD, NOBODY, 1)?;
    step.same(
        "what the pod hears of 10.96.0.1:443",
        "1 x refused: PortUnreachable",
        heard.lines().join(", "),
    );
    refused(stage, &mut step, before)?;
    step.look_at(
        "\"Connection refused\" on a cluster IP nearly always means: no endpoint is ready. kubectl get endpointslices says \
         so, and so does kube-proxy explain.",
    );
    Ok(step)
}

fn refusals(stage: &Stage) -> Result<u64> {
    match stage.mode {
        Mode::Iptables => table::packets(stage, "filter", "has no endpoints"),
        Mode::Nftables => Ok(0),
    }
}

/// In iptables mode the rule that refused counts.
fn refused(stage: &Stage, step: &mut Step, before: u64) -> Result<()> {
    if stage.mode == Mode::Iptables {
        stage.on_node(step, NODE_A, "iptables -w -L KUBE-SERVICES -n -v -t filter")?;
        let taken = refusals(stage)? - before;
        step.fact(
            "packets that the REJECT rule took",
            "at least 1",
            taken,
            taken > 0,
        );
    }
    Ok(())
}

/// A pod that meets itself.
pub fn hairpin(stage: &mut Stage) -> Result<Step> {
    let mut step = Step::new(
        "Hairpin: a pod asks its own Service and may meet itself",
        "The pod sender-a is one of the two endpoints of the Service sender. When chance sends it to itself, the packet \
         would arrive with its own address as the source, and no pod answers itself over the network. So what comes from \
         the endpoint that it goes to is masqueraded: the node puts its own address in.",
    );
    let heard = stage.ask(&mut step, POD, "10.1.177.169:8081", 40)?;
    one_of_two(&mut step, &heard, "sender-a, sender-b");
    masqueraded_as(
        &mut step,
        "client that sender-a saw, asked by itself",
        &heard.clients_at(|pod| pod == POD),
    );
    step.same(
        "client that sender-b saw",
        POD_IP,
        heard.clients_at(|pod| pod != POD),
    );
    if stage.mode == Mode::Iptables {
        stage.on_node(
            &mut step,
            NODE_A,
            "iptables -w -L KUBE-SEP-FNIOBLM3LVYZM3SL -n -t nat",
        )?;
    }
    step.look_at(
        "The bridge has to send a packet back out of the port it came in by (hairpin mode). Where a CNI forgets that, a pod \
         reaches its own Service only when it meets somebody else: half of the time with two replicas, never with one.",
    );
    Ok(step)
}

/// The client is the node, by whichever of its addresses.
pub fn masqueraded(step: &mut Step, clients: &str) {
    masqueraded_as(step, "client that they saw", clients);
}

fn masqueraded_as(step: &mut Step, what: &str, clients: &str) {
    let as_told = clients.split(", ").all(|client| NODE_IPS.contains(&client));
    step.fact(
        what,
        format!("node-a ({})", NODE_IPS.join(", ")),
        clients,
        as_told,
    );
}
