//! The two flow charts, drawn from the rules that the node has.

use super::stage::Stage;
use super::step::{Step, joined};
use super::{Mode, POD_IP, SPRING_TEST};
use anyhow::{Context, Result};
use lab::seed::NODE_A;
use std::fs;
use std::path::Path;

/// A flow chart: its file, its packet in the words of `trace`, and chains that must be in it, in either mode.
struct Chart {
    file: &'static str,
    packet: [&'static str; 6],
    iptables: &'static [&'static str],
    nftables: &'static [&'static str],
}

/// A pod at a cluster IP, and a client at a node port.
const CHARTS: [Chart; 2] = [
    Chart {
        file: "cluster-ip.svg",
        packet: ["--from", POD_IP, "--to", SPRING_TEST, "--in-interface", "cni0"],
        iptables: &[
            "PREROUTING",
            "KUBE-SERVICES",
            "KUBE-SVC-HKCWQRYAXFH7ZPX3",
            "KUBE-SEP-YRHRNHV2V2F35SK2",
            "KUBE-SEP-6JBGLP5EV4JHVRIR",
            "FORWARD",
            "POSTROUTING",
        ],
        nftables: &[
            "nat-prerouting",
            "services",
            "service/endpoints",
            "service/to/0",
            "service/to/1",
        ],
    },
    Chart {
        file: "node-port.svg",
        packet: [
            "--from",
            "192.168.50.10",
            "--to",
            "192.168.50.238:31080",
            "--in-interface",
            "eth0",
        ],
        iptables: &[
            "PREROUTING",
            "KUBE-SERVICES",
            "KUBE-NODEPORTS",
            "KUBE-EXT-HKCWQRYAXFH7ZPX3",
            "KUBE-MARK-MASQ",
            "KUBE-SVC-HKCWQRYAXFH7ZPX3",
            "KUBE-SEP-YRHRNHV2V2F35SK2",
            "KUBE-SEP-6JBGLP5EV4JHVRIR",
            "FORWARD",
            "KUBE-POSTROUTING",
        ],
        nftables: &[
            "nat-prerouting",
            "services",
            "nodeport/all",
            "nodeport/endpoints",
            "masquerading",
        ],
    },
];

/// The way to the pods of the other node.
const ROUTE: &str = "10.244.2.0/24 via 192.168.50.239 dev eth0";

/// Both charts; into files, if there is a folder for them.
///
/// # Errors
/// When they cannot be drawn or written.
pub fn charts(stage: &Stage, folder: Option<&Path>) -> Result<Step> {
    let mut step = Step::new(
        "The two flow charts, drawn from the rules of node-a",
        "trace walks a packet through the rules that the kernel has, and draws its ways: hooks as frames, chains as cards, \
         and where chance decides, both ways with their chances.",
    );
    for chart in CHARTS {
        let mut argv = vec!["trace", "--route", ROUTE, "--output", "svg"];
        argv.extend(chart.packet);
        let drawn = stage.ourselves(NODE_A, &argv)?;
        let typed = format!(
            "ip netns exec {} kube-proxy trace {} --route '{ROUTE}' --output svg > {}",
            stage.lab.topology().namespace_name(NODE_A),
            chart.packet.join(" "),
            chart.file
        );
        step.ran(&typed, Vec::new());
        let wanted = match stage.mode {
            Mode::Iptables => chart.iptables,
            Mode::Nftables => chart.nftables,
        };
        let missing = wanted.iter().filter(|chain| !has_card(&drawn, chain));
        step.same(
            &format!("chains that {} lacks", chart.file),
            "nothing",
            joined(missing),
        );
        if let Some(folder) = folder {
            let path = folder.join(chart.file);
            fs::write(&path, &drawn).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    step.look_at(match folder {
        Some(_) => "The drawings are in the folder of --drawings; any browser shows them.",
        None => "With --drawings DIR the tour leaves them in a folder; any browser shows them.",
    });
    Ok(step)
}

/// Whether a card of the drawing is that chain's.
fn has_card(drawn: &str, chain: &str) -> bool {
    let end = format!(" {chain}</text>");
    let mut cards = drawn
        .lines()
        .filter(|line| line.starts_with("<text class=\"chain\""));
    cards.any(|line| line.ends_with(&end))
}
