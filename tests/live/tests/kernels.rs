//! Nftables mode on kernels that are too old, or lack something. On the machine's own kernel nothing of this can be
//! had: `cargo xtask guest` boots others.

use lab::ProbeOutcome;
use lab::live::patience;
use live::cluster::{self, CLIENT, WEB};
use live::daemon::{Setup, binary, configuration};
use live::manifests::Manifests;
use live::traffic::web_answers;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Set in a guest.
const GUEST: &str = "KPRS_GUEST";
/// In a guest everything is slow.
const START: Duration = Duration::from_secs(5);

/// The daemon in a network namespace of its own, stopped if it serves; its log and its end.
fn start(environment: &[(&str, &str)]) -> Output {
    assert!(
        std::env::var_os(GUEST).is_some(),
        "this test is for guests: cargo xtask guest"
    );
    let manifests = tempfile::tempdir().expect("a scratch folder can be made");
    let seconds = patience(START).as_secs().to_string();
    let output = Command::new("unshare")
        .args(["-n", "timeout", &seconds])
        .arg(binary())
        .args(["--proxy-mode", "nftables", "--hostname-override", "node-a"])
        .arg("--manifests")
        .arg(manifests.path())
        .env_remove("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK")
        .envs(environment.iter().copied())
        .output();
    output.expect("util-linux and coreutils are there")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// What `timeout` says when it had to end the command.
const STOPPED: Option<i32> = Some(124);

#[test]
#[ignore = "for a kernel older than 5.13: cargo xtask guest --kernel 5.10"]
fn an_old_kernel_is_refused_and_tried_when_the_operator_says_so() {
    let refused = start(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    for words in ["older than 5.13", "mode: iptables", "SKIP_KERNEL_VERSION_CHECK"] {
        assert!(told(&refused).contains(words), "{words} in {}", told(&refused));
    }
    let tried = start(&[("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")]);
    assert_eq!(tried.status.code(), STOPPED, "{}", told(&tried));
    assert!(told(&tried).contains("family is served"), "{}", told(&tried));
}

/// Every feature that has a module of its own, taken from a kernel that has not loaded it yet.
#[test]
#[ignore = "takes modules from the kernel: cargo xtask guest"]
fn what_a_kernel_lacks_is_named_with_its_module_and_ends_the_process() {
    let skip = [("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")];
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    for module in ["nft_masq", "nft_numgen", "nft_fib_ipv4"] {
        assert!(
            !loaded.contains(&format!("{module} ")),
            "{module} is loaded already"
        );
    }
    let modules = Path::new("/lib/modules").join(release());
    let taken: Vec<PathBuf> = ["nft_masq", "nft_numgen", "nft_fib_ipv4"]
        .iter()
        .map(|module| find(&modules.join("kernel"), module))
        .collect();
    for file in &taken {
        fs::rename(file, file.with_extension("taken")).expect("a guest's files can be renamed");
    }
    let poor = start(&skip);
    for file in &taken {
        fs::rename(file.with_extension("taken"), file).expect("a guest's files can be renamed");
    }
    assert_eq!(poor.status.code(), Some(1), "{}", told(&poor));
    let said = told(&poor);
    for words in [
        "`masquerade` for IPv4 (module nft_masq, kernel option CONFIG_NFT_MASQ)",
        "`numgen` for IPv4 (module nft_numgen, kernel option CONFIG_NFT_NUMGEN)",
        "`fib` for IPv4 (module nft_fib_ipv4, kernel option CONFIG_NFT_FIB_IPV4)",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    for there in ["`ct`", "`dnat`", "`reject`", "sets"] {
        assert!(!said.contains(there), "{there} in {said}");
    }
    // With everything in its place it serves, and has loaded conntrack before it saw to conntrack's settings.
    let whole = start(&skip);
    let said = told(&whole);
    assert_eq!(whole.status.code(), STOPPED, "{said}");
    assert!(said.contains("family is served"), "{said}");
    assert!(!said.contains("No such file or directory"), "{said}");
}

/// The rules under session affinity are others than without it.
#[test]
#[ignore = "on the machine's own kernel this is no news: cargo xtask guest"]
fn affinity_holds_on_older_kernels_too() {
    let (lab, manifests) = (cluster::up("kernaff"), Manifests::new());
    let mut objects = cluster::web(3);
    let service = objects.iter_mut().find(|item| item["kind"] == "Service");
    service.expect("a Service")["spec"]["sessionAffinity"] = json!("ClientIP");
    manifests.put("web.json", &objects);
    let mut setup = Setup::new(&lab, cluster::NODE, &manifests);
    setup.config = configuration(&json!({"mode": "nftables", "nftables": {"minSyncPeriod": "10ms"}}));
    let skip = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";
    setup.environment.push((skip, "1".to_owned()));
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    let probe = cluster::tcp(WEB).within(patience(START));
    let outcomes = lab.probe_many(CLIENT, probe, 20).expect("probes are sent");
    let by: BTreeSet<Option<&str>> = outcomes.iter().map(ProbeOutcome::answered_by).collect();
    assert!(by.len() == 1 && !by.contains(&None), "{by:?}\n{}", daemon.log());
}

fn release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").expect("every kernel has a release");
    text.trim().to_owned()
}

/// The file of a module, whatever it is packed with.
fn find(folder: &Path, module: &str) -> PathBuf {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of modules").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                folders.push(path);
            } else if name.to_string_lossy().split('.').next() == Some(module) {
                return path;
            }
        }
    }
    panic!("the kernel has no module {module}")
}
