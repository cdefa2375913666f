//! The stage of the tour: the lab with DNS, a proxy on each node, and objects that change on the way.

use super::Mode;
use super::step::{Heard, Step, lines};
use crate::demo::stage::{OBJECTS, prepare_pods, write_files};
use anyhow::{Context, Result, bail};
use lab::dns::Dns;
use lab::live::patience;
use lab::topology::{Pod, PodNetwork, Port, Topology};
use lab::{Lab, LabProcess, Probe, Signal, seed};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The prefix of `kube-proxy lab` itself, so that its commands need not name it.
pub const PREFIX: &str = "kp";

/// The nodes.
pub const NODES: [&str; 2] = [seed::NODE_A, seed::NODE_B];

/// How long a proxy may take to write what the objects ask for.
const SYNC: Duration = Duration::from_secs(30);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// Seconds after which a command in a pod is given up.
const GIVEN_UP: &str = "20";

/// The pods that replicas run in: `app-0` to `app-9`, on both nodes by turns.
pub const REPLICAS: usize = 10;

/// The cluster, running.
pub struct Stage {
    /// The lab.
    pub lab: Lab,
    /// What the proxies run in.
    pub mode: Mode,
    /// What the DNS servers were asked.
    pub dns: Dns,
    proxies: Vec<LabProcess>,
    program: PathBuf,
    manifests: PathBuf,
    config: PathBuf,
    objects: Value,
}

impl Stage {
    /// Builds it and waits until the rules are what the objects ask for.
    ///
    /// # Errors
    /// When a part of it is not to be had on this machine.
    pub fn set(prefix: &str, mode: Mode) -> Result<Stage> {
        let program = std::env::current_exe().context("cannot find our own program")?;
        let lab = Lab::up(&topology(prefix)).context("cannot build the lab")?;
        prepare_pods(&lab)?;
        let folder = lab.folder().join("tour");
        let (manifests, config) =
            write_files(&folder, mode.word()).context("cannot write the cluster's objects")?;
        let objects = objects()?;
        let pods = seed::DNS_PODS;
        let dns = Dns::start(&lab, &pods, seed::DNS, &objects)
            .context("cannot start dnsmasq (Debian: dnsmasq-base)")?;
        let mut stage = Stage {
            lab,
            mode,
            dns,
            proxies: Vec::new(),
            program,
            manifests,
            config,
            objects,
        };
        stage.write_objects()?;
        for node in NODES {
            let started = stage
                .lab
                .start_proxy(node, &stage.program, &stage.manifests, &stage.config);
            stage.proxies.push(started.context("cannot start the proxy")?);
        }
        stage.wait_for_rules()?;
        Ok(stage)
    }

    /// Changes the objects, and waits until DNS and rules have followed.
    ///
    /// # Errors
    /// When they do not.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let items = self.objects["items"].as_array_mut();
        change(items.context("the objects are no list")?);
        self.dns.publish(&self.objects)?;
        self.write_objects()?;
        self.wait_for_rules()
    }

    /// Under another name first: the proxies watch the folder.
    fn write_objects(&self) -> Result<()> {
        let hidden = self.manifests.join(".objects.json.new");
        fs::write(&hidden, self.objects.to_string())
            .and_then(|()| fs::rename(&hidden, self.manifests.join("objects.json")))
            .context("cannot write the cluster's objects")
    }

    /// Waits until `kube-proxy verify` finds no difference on either node.
    ///
    /// # Errors
    /// When it still finds one, with what it says, or a proxy has ended.
    pub fn wait_for_rules(&mut self) -> Result<()> {
        let deadline = Instant::now() + patience(SYNC);
        let program = self.program.to_string_lossy();
        let [manifests, config] = [&self.manifests, &self.config].map(|path| path.to_string_lossy());
        for (node, proxy) in NODES.iter().zip(&mut self.proxies) {
            let argv = [
                &*program,
                "verify",
                "--manifests",
                &manifests,
                "--config",
                &config,
                "--node",
                node,
            ];
            loop {
                let found = self.lab.exec(node, &argv)?;
                if found.status.success() {
                    break;
                }
                if proxy.ended()?.is_some() || Instant::now() > deadline {
                    let (said, log) = (found.stdout + &found.stderr, proxy.log());
                    bail!(
                        "the rules of {node} are not what the objects ask for:\n{said}\nthe proxy said:\n{log}"
                    );
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Stops the proxy of the first node, so that it repairs nothing, or has it go on.
    ///
    /// # Errors
    /// When it has gone.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let proxy = self.proxies.first_mut().context("there is no proxy")?;
        Ok(proxy.signal(signal)?)
    }

    /// Runs a command on a node, and notes it as a reader types it.
    ///
    /// # Errors
    /// When it fails.
    pub fn on_node(&self, step: &mut Step, node: &str, command: &str) -> Result<String> {
        let printed = self.quietly(node, command)?;
        let namespace = self.lab.topology().namespace_name(node);
        step.ran(&format!("ip netns exec {namespace} {command}"), lines(&printed));
        Ok(printed)
    }

    /// Runs a command of the shell at a place.
    ///
    /// # Errors
    /// When it fails.
    pub fn quietly(&self, place: &str, command: &str) -> Result<String> {
        Ok(self.lab.must_exec(place, &["sh", "-e", "-c", command])?)
    }

    /// Runs a command in a pod, and notes it. That it fails is an answer: what it printed. A resolver that nobody answers
    /// by TCP tries for minutes; it is not waited for so long.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn in_pod(&self, step: &mut Step, pod: &str, command: &str) -> Result<String> {
        let argv: Vec<&str> = ["timeout", GIVEN_UP]
            .into_iter()
            .chain(command.split(' '))
            .collect();
        let finished = self.lab.exec(pod, &argv)?;
        // What `timeout` and shells end with when there was no command to run, or no resolver to give it.
        if matches!(finished.status.code(), Some(125..=127)) {
            bail!("cannot run {command} in {pod}: {}", finished.stderr.trim());
        }
        let printed = finished.stdout;
        let own = self.flag();
        step.ran(
            &format!("kube-proxy lab exec{own} {pod} -- {command}"),
            lines(&printed),
        );
        Ok(printed)
    }

    /// Connects so many times, and notes it.
    ///
    /// # Errors
    /// When the place is gone.
    pub fn ask(&self, step: &mut Step, from: &str, to: &str, count: usize) -> Result<Heard> {
        let address: SocketAddr = to.parse().with_context(|| format!("{to} is no address"))?;
        let heard = Heard(
            self.lab
                .probe_many(from, Probe::tcp(address).within(patience(ANSWER)), count)?,
        );
        let (own, times) = (
            self.flag(),
            if count == 1 {
                String::new()
            } else {
                format!(" {count}")
            },
        );
        step.ran(
            &format!("kube-proxy lab probe{own} {from} tcp {to}{times}"),
            heard.lines(),
        );
        Ok(heard)
    }

    /// Runs this program on a node, and notes it as a reader types it. What it prints is handed over.
    ///
    /// # Errors
    /// When it fails.
    pub fn ourselves(&self, node: &str, argv: &[&str]) -> Result<String> {
        let program = self.program.to_string_lossy();
        let argv: Vec<&str> = std::iter::once(&*program).chain(argv.iter().copied()).collect();
        Ok(self.lab.must_exec(node, &argv)?)
    }

    fn flag(&self) -> String {
        match self.lab.topology().prefix.as_str() {
            PREFIX => String::new(),
            prefix => format!(" --prefix {prefix}"),
        }
    }

    /// Ends the proxies and removes the lab.
    ///
    /// # Errors
    /// When something is left behind.
    pub fn strike(self) -> Result<()> {
        for proxy in self.proxies {
            proxy.stop(Duration::from_secs(5))?;
        }
        drop(self.dns);
        Ok(self.lab.down()?)
    }
}

/// The demonstration's cluster, with pods for [`REPLICAS`] and port 53 left to DNS.
fn topology(prefix: &str) -> Topology {
    let mut topology = seed::topology_for_dns(prefix);
    let replicas = (0..REPLICAS).map(|number| {
        let (address, node) = replica(number);
        Pod {
            name: format!("app-{number}"),
            node: node.to_owned(),
            addresses: vec![address],
            network: PodNetwork::Own,
            ports: vec![Port::tcp(8080)],
            answers_as: None,
        }
    });
    topology.pods.extend(replicas);
    topology
}

/// The address of a replica's pod, and its node.
pub fn replica(number: usize) -> (IpAddr, &'static str) {
    let on = number % NODES.len();
    let last = u8::try_from(20 + number).expect("invariant: a few replicas");
    let subnet = if on == 0 { 1 } else { 2 };
    (IpAddr::from([10, 244, subnet, last]), NODES[on])
}

/// The demonstration's objects, and the second node, which runs a proxy here.
fn objects() -> Result<Value> {
    let mut objects: Value = serde_json::from_str(OBJECTS).context("cannot read our own objects")?;
    let items = objects["items"].as_array_mut();
    items.context("our own objects are no list")?.push(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": seed::NODE_B},
        "spec": {"podCIDR": "10.244.2.0/24", "podCIDRs": ["10.244.2.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.239"}]},
    }));
    Ok(objects)
}
