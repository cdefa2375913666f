//! `kube-proxy explore`: the explorer's page over files, or over an API server that is asked once, on a loopback port.

use crate::explain::Sources;
use anyhow::{Context as _, Result, bail};
use proxy::Explorer;
use std::io::Write as _;
use std::net::SocketAddr;

/// Look at services, endpoints, rules and paths in a browser.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Objects come from --manifests, or from the API server (--kubeconfig, --master), and are read once; a host's own rules
from --dump. The page is as one node sees it (--node). It is served to this host alone unless --address says otherwise,
changes nothing, and loads nothing from elsewhere.

Examples:
  kube-proxy explore --manifests ./cluster --node node-a
  kubectl get svc,endpointslices,pods,nodes -A -o yaml | kube-proxy explore --manifests -
  kube-proxy explore --kubeconfig ~/.kube/config --node node-a
  kube-proxy explore --manifests ./cluster --dump saved.txt --facts node.yaml

Exit status: 2 when there is nothing to show; else it serves until it is ended."
)]
pub struct Args {
    /// Where to serve the page; port 0 is any free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    address: SocketAddr,
    #[command(flatten)]
    sources: Sources,
}

/// Serves until the process is ended.
///
/// # Errors
/// When there is nothing to show, or the port cannot be opened.
pub fn run(args: &Args) -> Result<crate::failure::Answer> {
    if args.sources.are_none() {
        bail!(
            "nothing to show: give objects (--manifests PATH; --kubeconfig FILE for the API server) or a host's saved rules (--dump \
             FILE), for example: kubectl get svc,endpointslices,pods,nodes -A -o yaml | kube-proxy explore --manifests -"
        );
    }
    let world = crate::explain::world_of(&args.sources)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let opened = Explorer::open(args.address, world).await;
        let explorer = opened.with_context(|| format!("cannot serve on --address {}", args.address))?;
        tell(explorer.address().context("cannot tell where the page is")?)?;
        explorer.serve().await.context("cannot go on serving")?;
        bail!("the explorer ended")
    })
}

/// The one line on standard output: scripts read the port from it.
fn tell(address: SocketAddr) -> Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "http://{address}/explore/")?;
    out.flush()?;
    anstream::eprintln!("serving until it is ended (Ctrl-C)");
    Ok(())
}
