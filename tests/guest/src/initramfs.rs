//! What a guest begins with: a busybox, the few modules that it takes to reach this machine's files, and two scripts.

use crate::download::said;
use crate::kernel::Kernel;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Modules without which the root cannot be reached; what they need comes with them.
const FIRST: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Writes the archive for a kernel to `folder/initramfs`.
pub fn write(kernel: &Kernel, folder: &Path) -> Result<()> {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("bin"))?;
    fs::copy(&kernel.busybox, tree.join("bin/busybox"))?;
    fs::write(tree.join("init"), include_str!("init.sh"))?;
    fs::write(tree.join("start"), include_str!("start.sh"))?;
    let list = fs::read_to_string(kernel.modules.join("modules.dep")).context("the kernel's modules.dep")?;
    let mut order: Vec<String> = vec![];
    for module in FIRST {
        // A module and, behind the colon, what it needs: what is needed by nobody else stands last.
        let line = list.lines().find(|line| is_about(line, module));
        let line = line.with_context(|| format!("the kernel has no module {module}"))?;
        let files: Vec<&str> = line.split([':', ' ']).filter(|file| !file.is_empty()).collect();
        for file in files.into_iter().rev() {
            let name = file.replace('/', "_");
            if !order.contains(&name) {
                unpacked(&kernel.modules.join(file), &tree.join(&name))?;
                order.push(name);
            }
        }
    }
    fs::write(tree.join("modules"), order.join("\n") + "\n")?;
    let script = r#"chmod +x init && find . | "$1" cpio -o -H newc >../initramfs"#;
    let mut pack = Command::new("sh");
    pack.args(["-e", "-c", script, "sh"]).arg(&kernel.busybox);
    said(pack.current_dir(&tree))?;
    Ok(())
}

fn is_about(line: &str, module: &str) -> bool {
    let file = line.split(':').next().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default();
    name.split('.').next() == Some(module)
}

/// Newer kernels' modules are compressed, which `insmod` need not know of.
fn unpacked(from: &Path, to: &Path) -> Result<()> {
    if from.extension().is_some_and(|extension| extension == "xz") {
        let script = r#"xz -dc "$1" >"$2""#;
        said(
            Command::new("sh")
                .args(["-e", "-c", script, "sh"])
                .arg(from)
                .arg(to),
        )?;
    } else {
        fs::copy(from, to)?;
    }
    Ok(())
}
