//! The drawings in the book are what `kube-proxy trace` draws now of rules that a kernel had (those of upstream's
//! kube-proxy, which are ours, rule by rule). `cargo xtask bless` draws them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A drawing: its file, its packet, and the way to the pods of the other node.
const DRAWINGS: [(&str, &str, &str); 3] = [
    (
        "node-port.svg",
        "--from 203.0.113.9 --to 192.168.50.238:31081 --in-interface eth0",
        "10.244.0.0/16 via 192.168.50.1 dev eth0",
    ),
    (
        "tour-cluster-ip.svg",
        "--from 10.244.1.7 --to 10.1.68.7:8080 --in-interface cni0",
        "10.244.2.0/24 via 192.168.50.239 dev eth0",
    ),
    (
        "tour-node-port.svg",
        "--from 192.168.50.10 --to 192.168.50.238:31080 --in-interface eth0",
        "10.244.2.0/24 via 192.168.50.239 dev eth0",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn draw(packet: &str, route: &str) -> String {
    let rules = root().join("scenarios/golden/seed-nodeport/iptables.txt");
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["trace", "--output", "svg", "--dump"])
        .arg(rules)
        .args(packet.split(' '))
        .args(["--interface", "eth0=192.168.50.238/24"])
        .args(["--interface", "cni0=10.244.1.1/24", "--route", route])
        .output()
        .expect("the binary is built");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("a drawing is text")
}

#[test]
fn drawings_in_the_book_are_what_the_tool_draws() {
    let bless = std::env::var_os("KPRS_BLESS").is_some_and(|value| !value.is_empty());
    let folder = root().join("docs/drawings");
    for (file, packet, route) in DRAWINGS {
        let (path, drawn) = (folder.join(file), draw(packet, route));
        let found = fs::read_to_string(&path).unwrap_or_default();
        if bless && found != drawn {
            println!("blessed docs/drawings/{file}");
            fs::write(&path, drawn).expect("the drawing can be written");
        } else {
            assert!(
                found == drawn,
                "docs/drawings/{file} is not what trace draws; `cargo xtask bless` draws it anew"
            );
        }
    }
}

#[test]
fn every_drawing_in_the_book_is_drawn_by_the_tool_and_shown_on_a_page() {
    let docs = root().join("docs");
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).expect("the folder is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    };
    let drawn: BTreeSet<String> = DRAWINGS.iter().map(|(file, ..)| (*file).to_owned()).collect();
    assert_eq!(names(&docs.join("drawings")), drawn);
    let pages = names(&docs)
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|kind| kind == "md"));
    let pages: String = pages
        .map(|page| fs::read_to_string(docs.join(page)).expect("a page is text"))
        .collect();
    for file in drawn {
        assert!(
            pages.contains(&format!("(drawings/{file})")),
            "no page shows {file}"
        );
    }
}
