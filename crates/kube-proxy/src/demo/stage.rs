//! The stage of the demonstration: the lab, the cluster's objects, and the proxy at work on its first node.

use crate::input::{ClusterArgs, SettingsArgs, World};
use anyhow::{Context, Result, anyhow, bail};
use iptables::ast::{Match, Ports, Rule, Ruleset, TableName};
use iptables::build::{Capabilities, Nfacct};
use iptables::names::is_dispatch;
use kernel::nfacct::{Accounting, ensure_counters};
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, LiveKernel, RuleKernel, Scope};
use lab::{Lab, LabError, LabProcess, Signal, seed};
use model::Family;
use path::{Host, HostInterface, Route};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The objects of the demonstration: those of the scenario, so that its golden tells what must come out.
pub const OBJECTS: &str = include_str!("../../../../scenarios/golden/seed-nodeport/cluster.json");

/// The pods' network.
pub const CLUSTER_CIDR: &str = "10.244.0.0/16";

/// There when bridges can call iptables.
const BRIDGE_CALLS_IPTABLES: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The node that the demonstration looks at.
pub const NODE: &str = seed::NODE_A;

/// How long the proxy may take to write its first rules.
const SYNC: Duration = Duration::from_secs(15);

/// How long it may take from then on until the rules are those that are wanted.
const SETTLE: Duration = Duration::from_secs(3);

/// Everything that is running in iptables mode, and what is wanted of it.
pub struct Stage {
    /// What is running.
    pub site: Site,
    /// The rules that the cluster's objects become.
    pub intent: Ruleset,
    probe: Probe,
}

/// The lab with the proxy at work on [`NODE`], whatever its mode.
pub struct Site {
    /// The lab.
    pub lab: Lab,
    /// The cluster's objects, as [`NODE`] sees them.
    pub world: World,
    /// What is known of the node beside its rules.
    pub node: NodeView,
    /// The proxy.
    pub proxy: LabProcess,
}

impl Site {
    /// Builds the lab and starts `program` as the proxy of [`NODE`] in this mode.
    ///
    /// # Errors
    /// When a part of it is not to be had on this machine.
    pub fn set(program: &Path, mode: &str) -> Result<Site> {
        let lab = Lab::up(&seed::topology(&lab::live::prefix("demo"))).context("cannot build the lab")?;
        prepare_pods(&lab)?;
        let folder = lab.folder().join("demo");
        let (manifests, config) = write_files(&folder, mode).context("cannot write the cluster's objects")?;
        let node = NodeView::read(&lab)?;
        let proxy = lab
            .start_proxy(NODE, program, &manifests, &config)
            .context("cannot start the proxy")?;
        let cluster = ClusterArgs {
            manifests: Some(manifests),
            node: Some(NODE.to_owned()),
            settings: SettingsArgs {
                config: Some(config),
                proxy_mode: None,
                cluster_cidr: None,
                external_ip_allowed_cidrs: None,
            },
            about: None,
        };
        let own: Vec<IpAddr> = node
            .interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().map(ipnet::IpNet::addr))
            .collect();
        let world = cluster.load(&own)?;
        Ok(Site {
            lab,
            world,
            node,
            proxy,
        })
    }

    /// Pauses the proxy, so that it repairs nothing, and runs a command of the shell on the node.
    ///
    /// # Errors
    /// When the command fails.
    pub fn tamper(&mut self, command: &str) -> Result<()> {
        self.proxy.signal(Signal::STOP)?;
        self.lab.must_exec(NODE, &["sh", "-c", command])?;
        Ok(())
    }

    /// Ends the proxy and removes the lab.
    ///
    /// # Errors
    /// When something is left behind.
    pub fn strike(self) -> Result<()> {
        let Site { lab, mut proxy, .. } = self;
        // A paused process hears nothing.
        proxy.signal(Signal::CONT)?;
        proxy.stop(Duration::from_secs(5))?;
        Ok(lab.down()?)
    }
}

/// A node's interfaces and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    interfaces: Vec<HostInterface>,
    routes: Vec<Route>,
}

impl NodeView {
    /// The node with these rules.
    pub fn with_rules(&self, rules: Ruleset) -> Host {
        let mut host = Host {
            interfaces: self.interfaces.clone(),
            routes: Some(self.routes.clone()),
            ..Host::default()
        };
        *host.rules.get_mut(Family::V4) = rules;
        host
    }

    fn read(lab: &Lab) -> Result<NodeView> {
        let addresses = lab
            .namespace(NODE)?
            .run(kernel::addresses::interface_addresses)?
            .context("cannot read the node's addresses")?;
        let mut view = NodeView::default();
        for found in addresses {
            match view
                .interfaces
                .iter_mut()
                .find(|one| *one.name == *found.interface)
            {
                Some(interface) => interface.addresses.push(found.address),
                None => view.interfaces.push(HostInterface {
                    name: found.interface.into(),
                    addresses: vec![found.address],
                }),
            }
        }
        view.routes = routes(&lab.must_exec(NODE, &["ip", "-4", "-json", "route"])?)?;
        Ok(view)
    }
}

/// A line of `ip -json route`.
#[derive(serde::Deserialize)]
struct RouteLine {
    dst: String,
    gateway: Option<IpAddr>,
    dev: String,
}

fn routes(json: &str) -> Result<Vec<Route>> {
    let lines: Vec<RouteLine> = serde_json::from_str(json).context("cannot read the node's routes")?;
    let route = |line: RouteLine| {
        let to = match line.dst.as_str() {
            "default" => "0.0.0.0/0".parse().ok(),
            net => net
                .parse()
                .ok()
                .or_else(|| net.parse::<IpAddr>().ok().map(Into::into)),
        };
        Ok(Route {
            to: to.with_context(|| format!("route to {:?}", line.dst))?,
            via: line.gateway,
            interface: line.dev.into(),
        })
    };
    lines.into_iter().map(route).collect()
}

impl Stage {
    /// Builds the lab, starts `program` as the proxy of [`NODE`] and waits until its rules are there.
    ///
    /// # Errors
    /// When a part of it is not to be had on this machine.
    pub fn set(program: &Path) -> Result<Stage> {
        let site = Site::set(program, "iptables")?;
        let probe = site.lab.namespace(NODE)?.run(tools)??;
        let mut stage = Stage {
            site,
            intent: Ruleset::default(),
            probe,
        };
        stage.wait_for_first_rules()?;
        // Asked only now, because it makes the counters if they are missing, and that is the proxy's to do.
        let capabilities = stage.on_node(|| capabilities(&stage.probe))?;
        stage.intent = stage.site.world.ruleset(Family::V4, capabilities);
        Ok(stage)
    }

    /// Runs `work` inside the node's network namespace.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn on_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.site.lab.namespace(NODE)?.run(work)
    }

    /// The node's rules as they are now.
    ///
    /// # Errors
    /// When the kernel would not say.
    pub fn rules(&self) -> Result<Ruleset> {
        self.on_node(|| observed(&mut self.kernel()))?
    }

    /// The rules' interface; to be used inside the node's namespace.
    pub fn kernel(&self) -> LiveKernel {
        LiveKernel::new(self.probe.clone())
    }

    /// Waits until the kernel holds what is wanted, and says what differs if it never does. From then on
    /// [`Stage::intent`] has services in the order in which the proxy wrote them.
    ///
    /// # Errors
    /// When the kernel would not say.
    pub fn settle(&mut self) -> Result<Vec<String>> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let have = self.rules()?;
            let found = iptables::compare::differences(&self.intent, &have);
            if found.is_empty() || Instant::now() > deadline {
                adopt_free_order(&mut self.intent, &have);
                let words = found.iter().map(|one| one.text(Family::V4).to_string());
                return Ok(words.collect());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_first_rules(&mut self) -> Result<()> {
        let deadline = Instant::now() + SYNC;
        loop {
            if let Some(status) = self.site.proxy.ended()? {
                bail!("the proxy ended ({status}); it said:\n{}", self.site.proxy.log());
            }
            if serves_spring_test(&self.rules()?) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "the proxy wrote no rules within {SYNC:?}; it said:\n{}",
                    self.site.proxy.log()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A pod's answer to a neighbour is bridged past the node, which then cannot translate it back, unless bridges call
/// iptables. A kernel without the module for that (`br_netfilter`, which a fresh machine has not loaded) still carries
/// answers right when pods know no neighbours.
///
/// # Errors
/// When a pod is gone.
pub fn prepare_pods(lab: &Lab) -> Result<()> {
    if Path::new(BRIDGE_CALLS_IPTABLES).exists() {
        return Ok(());
    }
    for pod in &lab.topology().pods {
        let node = lab.topology().node(&pod.node);
        for cidr in node.iter().flat_map(|node| &node.pod_cidrs) {
            let argv = ["ip", "route", "del", &cidr.to_string(), "dev", "eth0"];
            lab.must_exec(&pod.name, &argv)?;
        }
    }
    Ok(())
}

/// Writes the objects and a configuration below `folder`: the manifests' folder and the file.
///
/// # Errors
/// When it cannot be written to.
pub fn write_files(folder: &Path, mode: &str) -> std::io::Result<(PathBuf, PathBuf)> {
    let (manifests, config) = (folder.join("cluster"), folder.join("config.yaml"));
    fs::create_dir_all(&manifests)?;
    fs::write(manifests.join("objects.json"), OBJECTS)?;
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: {mode}\n\
         clusterCIDR: {CLUSTER_CIDR}\n"
    );
    fs::write(&config, text)?;
    Ok((manifests, config))
}

/// The tools of the calling thread's namespace. Legacy's kernel tells nobody what a packet met.
fn tools() -> Result<Probe> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect).context("cannot find iptables")?;
    if probe.backend != Backend::NfTables {
        bail!("iptables here is the legacy one; the demonstration needs iptables-nft");
    }
    Ok(probe)
}

/// Reads rules back.
///
/// # Errors
/// When the kernel would not say.
pub fn observed(kernel: &mut LiveKernel) -> Result<Ruleset> {
    let mut rules = Ruleset::default();
    kernel
        .observe(Family::V4, &Scope::Everything, &mut |table, name, chain| {
            rules.tables.entry(table).or_default().chains.insert(name, chain);
        })
        .map_err(|error| anyhow!(error))?;
    Ok(rules)
}

fn capabilities(probe: &Probe) -> Capabilities {
    Capabilities {
        masquerade_ports: if probe.has_random_fully() {
            Ports::RandomFully
        } else {
            Ports::Kept
        },
        nfacct: match ensure_counters() {
            Accounting::Present => Nfacct::Present,
            Accounting::Absent(_) => Nfacct::Absent,
        },
    }
}

/// In the chains that services share, the order of services is free (upstream's is random), and so are the numbers of
/// rules: those of `have` are taken. No rule is.
pub fn adopt_free_order(rules: &mut Ruleset, have: &Ruleset) {
    for (table, chains) in &mut rules.tables {
        for (name, chain) in &mut chains.chains {
            if let (true, Some(live)) = (is_dispatch(*table, name), have.chain(*table, name.as_str())) {
                let place = |rule: &Rule| live.rules.iter().position(|one| one == rule);
                chain.rules.sort_by_key(|rule| place(rule).unwrap_or(usize::MAX));
            }
        }
    }
}

/// Whether the cluster IP of spring-test leads somewhere.
fn serves_spring_test(rules: &Ruleset) -> bool {
    let dispatch = rules.chain(TableName::Nat, "KUBE-SERVICES");
    let mut comments = dispatch
        .iter()
        .flat_map(|chain| &chain.rules)
        .flat_map(|rule| &rule.matches);
    comments
        .any(|one| matches!(one, Match::Comment(text) if text.starts_with("default/spring-test cluster IP")))
}
