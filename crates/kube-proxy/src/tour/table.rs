//! Tables of a node, as the tools print them.

use super::Mode;
use super::stage::Stage;
use super::step::Step;
use anyhow::{Context, Result};
use lab::seed::NODE_A;

/// Packets that the rules of KUBE-SERVICES took whose text contains these words.
///
/// # Errors
/// When there is no such rule.
pub fn packets(stage: &Stage, table: &str, words: &str) -> Result<u64> {
    let listed = stage.quietly(
        NODE_A,
        &format!("iptables -w -L KUBE-SERVICES -n -v -x -t {table}"),
    )?;
    let rule = listed.lines().find(|line| line.contains(words));
    let count = rule.and_then(|line| line.split_whitespace().next()?.parse().ok());
    count.with_context(|| format!("no rule with {words:?} in\n{listed}"))
}

/// The chains of spring-test by its cluster IP.
///
/// # Errors
/// When one is missing.
pub fn of_spring_test(stage: &Stage, step: &mut Step) -> Result<()> {
    match stage.mode {
        Mode::Iptables => {
            for chain in [
                "KUBE-SERVICES",
                "KUBE-SVC-HKCWQRYAXFH7ZPX3",
                "KUBE-SEP-YRHRNHV2V2F35SK2",
            ] {
                stage.on_node(step, NODE_A, &format!("iptables -w -L {chain} -n -t nat"))?;
            }
        }
        Mode::Nftables => {
            for slot in 0..2 {
                let key = "{ 10.1.68.7 . tcp . 8080 }";
                let command = format!("nft get element ip kube-proxy service-slot-{slot} '{key}'");
                stage.on_node(step, NODE_A, &command)?;
            }
        }
    }
    Ok(())
}

/// The chains that a node port leads through.
///
/// # Errors
/// When one is missing.
pub fn of_node_ports(stage: &Stage, step: &mut Step) -> Result<()> {
    match stage.mode {
        Mode::Iptables => {
            for chain in [
                "KUBE-NODEPORTS",
                "KUBE-EXT-HKCWQRYAXFH7ZPX3",
                "KUBE-MARK-MASQ",
                "KUBE-POSTROUTING",
            ] {
                stage.on_node(step, NODE_A, &format!("iptables -w -L {chain} -n -t nat"))?;
            }
        }
        Mode::Nftables => {
            stage.on_node(step, NODE_A, "nft list chain ip kube-proxy masquerading")?;
        }
    }
    Ok(())
}
