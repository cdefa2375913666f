//! Records what a real kube-apiserver answers to the requests of a daemon's life: `record KUBECONFIG FOLDER`.
//!
//! For developers, when upstream has a new version:
//! `cargo run -p cluster --example record -- KUBECONFIG scenarios/apiserver`. The kubeconfig needs all rights on a
//! server to break things in, with nobody else at work; it takes some two minutes, since bookmarks come once a minute.

mod events;
mod lives;
mod relay;
mod site;

use std::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, folder] = words.as_slice() else {
        return Err("say: KUBECONFIG FOLDER".into());
    };
    let site = site::Site::new(Path::new(kubeconfig)).await;
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    for (name, text) in [
        ("streaming-lists", lives::with_streaming_lists(&site).await),
        ("plain-lists", lives::with_plain_lists(&site).await),
        ("no-rights", lives::without_rights(&site, "none", &[]).await),
        (
            "rights-to-list",
            lives::without_rights(&site, "list", &["list"]).await,
        ),
        ("unknown-token", lives::with_a_wrong_token(&site).await),
        ("events", events::written(&site).await),
    ] {
        std::fs::write(folder.join(format!("{name}.jsonl")), text)?;
        println!("{name} recorded");
    }
    site.sweep().await;
    Ok(())
}
