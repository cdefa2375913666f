//! The lab itself: up, down, and the verbs in between.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::LabError;
use crate::build;
use crate::claim::Claim;
use crate::dns::Names;
use crate::driver::Driver;
use crate::netns::{self, Namespace};
use crate::probe::{Probe, ProbeOutcome};
use crate::prober::Prober;
use crate::process::{self, Finished, HttpAnswer, LabProcess};
use crate::serve::{Listen, Serving, Spec};
use crate::sink::{SeenPacket, SinkSpec};
use crate::topology::{PodNetwork, Port, Proto, Topology, WIRE};

/// How many probes of a bulk run are under way at once.
const AT_ONCE: usize = 64;

/// How long a server process may take to bind its sockets.
const SERVERS_READY: Duration = Duration::from_secs(10);

/// How a lab is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Who serves.
    pub servers: Servers,
    /// How long it lives.
    pub life: Life,
}

/// Who serves the pods' ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// A thread of this process.
    Threads,
    /// A process: this command with `--spec FILE --ready FILE` behind it must end up in [`crate::serve::run`].
    Process(Vec<String>),
}

/// How long a lab lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until the [`Lab`] is dropped or its process is gone.
    Owned,
    /// Until [`netns::sweep`]; needs [`Servers::Process`].
    Detached,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Servers::Threads,
            life: Life::Owned,
        }
    }
}

/// A running lab.
///
/// Everywhere a *place* is the name of a node, a pod, an outside client, the sink, or `wire`.
pub struct Lab {
    topology: Topology,
    life: Life,
    notes: Vec<String>,
    serving: Option<Serving>,
    server_process: Option<LabProcess>,
    reaper: Option<Child>,
    /// Of an owned lab. Its last field, so that the prefix is free when all else has gone.
    claim: Option<Claim>,
}

/// Making and removing.
impl Lab {
    /// Builds an owned lab served by threads of this process. What a crashed lab of the same prefix left goes first; one
    /// that is up is let be.
    ///
    /// # Errors
    /// See [`LabError`]; whatever was built is removed.
    pub fn up(topology: &Topology) -> Result<Self, LabError> {
        Self::up_with(topology, &Options::default())
    }

    /// Builds a lab.
    ///
    /// # Errors
    /// See [`LabError`]; whatever was built is removed.
    pub fn up_with(topology: &Topology, options: &Options) -> Result<Self, LabError> {
        topology.validate()?;
        if options.life == Life::Detached && options.servers == Servers::Threads {
            return Err(LabError::Servers(
                "a lab that outlives its maker needs a server process".to_owned(),
            ));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NeedsRoot);
        }
        let claim = Claim::take(&topology.prefix)?;
        netns::sweep(&topology.prefix)?;
        // Owned until it stands: an error on the way drops it, and that removes it.
        let mut lab = Self {
            topology: topology.clone(),
            life: Life::Owned,
            notes: vec![],
            serving: None,
            server_process: None,
            reaper: None,
            claim: Some(claim),
        };
        lab.build(&options.servers)?;
        if options.life == Life::Detached {
            lab.detach()?;
        }
        Ok(lab)
    }

    /// A handle on a lab that [`Life::Detached`] left running; dropping it leaves it running.
    ///
    /// # Errors
    /// When there is none of this prefix.
    pub fn attach(prefix: &str) -> Result<Self, LabError> {
        let path = netns::state_folder(prefix).join("topology.json");
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LabError::NoLab(prefix.to_owned()),
            _ => LabError::system(format!("read {}", path.display()), error),
        })?;
        let topology =
            serde_json::from_slice(&text).map_err(|error| LabError::Topology(error.to_string()))?;
        let (notes, life) = (vec![], Life::Detached);
        Ok(Self {
            topology,
            life,
            notes,
            serving: None,
            server_process: None,
            reaper: None,
            claim: None,
        })
    }

    /// Removes the lab and says what went wrong, which dropping it cannot.
    ///
    /// # Errors
    /// When something could not be removed.
    pub fn down(mut self) -> Result<(), LabError> {
        let removed = self.remove();
        self.life = Life::Detached;
        removed
    }

    fn build(&mut self, servers: &Servers) -> Result<(), LabError> {
        let folder = self.folder();
        let json = serde_json::to_vec_pretty(&self.topology).expect("invariant: a topology is plain data");
        fs::create_dir_all(folder.join("logs"))
            .and_then(|()| fs::write(folder.join("topology.json"), json))
            .map_err(|source| LabError::system(format!("write to {}", folder.display()), source))?;
        self.reaper = Some(build::start_reaper(&self.topology.prefix, &folder)?);
        self.notes = build::namespaces(&self.topology)?;
        self.start_servers(servers)
    }

    fn start_servers(&mut self, servers: &Servers) -> Result<(), LabError> {
        let spec = self.spec();
        match servers {
            Servers::Threads => self.serving = Some(Serving::start(&spec)?),
            Servers::Process(argv) => self.server_process = Some(self.start_server_process(argv, &spec)?),
        }
        Ok(())
    }

    /// In the wire's namespace, where [`netns::sweep`] finds it.
    fn start_server_process(&self, argv: &[String], spec: &Spec) -> Result<LabProcess, LabError> {
        let file = self.folder().join("serve.json");
        let ready = self.folder().join("serve.ready");
        let json = serde_json::to_vec_pretty(spec).expect("invariant: a spec is plain data");
        fs::write(&file, json).map_err(|e| LabError::system(format!("write {}", file.display()), e))?;
        let paths = [file.to_string_lossy(), ready.to_string_lossy()];
        let mut argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        argv.extend(["--spec", &paths[0], "--ready", &paths[1]]);
        let mut process = self.spawn(WIRE, &argv, "servers")?;
        let deadline = Instant::now() + SERVERS_READY;
        while !ready.exists() {
            if process.ended()?.is_some() || Instant::now() > deadline {
                return Err(LabError::Servers(process.log()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }

    fn detach(&mut self) -> Result<(), LabError> {
        if let Some(claim) = self.claim.take() {
            claim.detach()?;
        }
        self.life = Life::Detached;
        if let Some(process) = self.server_process.take() {
            process.leave_running();
        }
        self.end_reaper();
        Ok(())
    }

    fn end_reaper(&mut self) {
        if let Some(mut reaper) = self.reaper.take() {
            // Killed before its pipe closes, so that it does not begin.
            let _ended = reaper.kill();
            let _ended = reaper.wait();
        }
    }

    fn remove(&mut self) -> Result<(), LabError> {
        self.end_reaper();
        self.serving = None;
        self.server_process = None;
        netns::sweep(&self.topology.prefix).map(|_count| ())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.life == Life::Owned
            && let Err(error) = self.remove()
        {
            // A library that prints: nobody else will hear of it, and the leftovers are on the machine.
            eprintln!("lab {}: {}", self.topology.prefix, error.chain());
        }
    }
}

/// Looking around.
impl Lab {
    /// What it was built from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What this kernel lacks and the lab did without, sorted.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The folder of the lab's files: `topology.json`, `logs/`. It goes with the lab.
    pub fn folder(&self) -> PathBuf {
        netns::state_folder(&self.topology.prefix)
    }

    /// The namespace of a place; for a pod on the host network its node's.
    ///
    /// # Errors
    /// [`LabError::UnknownPlace`].
    pub fn namespace(&self, place: &str) -> Result<Namespace, LabError> {
        let host = self
            .topology
            .pod(place)
            .filter(|pod| pod.network == PodNetwork::Host);
        let place = host.map_or(place, |pod| &pod.node);
        let places = self.topology.places();
        if places.contains(&place) {
            return Ok(Namespace::named(self.topology.namespace_name(place)));
        }
        Err(LabError::UnknownPlace {
            prefix: self.topology.prefix.clone(),
            name: place.to_owned(),
            known: places.join(" "),
        })
    }

    /// What the sink has seen since the last call; empty when the servers are a process.
    pub fn take_seen(&self) -> Vec<SeenPacket> {
        self.serving.as_ref().map(Serving::take_seen).unwrap_or_default()
    }

    fn spec(&self) -> Spec {
        let mut listens = vec![];
        let mut add = |place: &str, name: &str, addresses: &[IpAddr], ports: &[Port]| {
            let namespace = Namespace::named(self.topology.namespace_name(place)).path();
            for (address, port) in addresses
                .iter()
                .flat_map(|ip| ports.iter().map(move |port| (*ip, *port)))
            {
                listens.push(Listen {
                    namespace: namespace.clone(),
                    answers_as: name.to_owned(),
                    proto: port.proto,
                    address: SocketAddr::new(address, port.port),
                });
            }
        };
        for pod in &self.topology.pods {
            let place = if pod.network == PodNetwork::Own {
                &pod.name
            } else {
                &pod.node
            };
            add(place, pod.reply_name(), &pod.addresses, &pod.ports);
        }
        for outside in &self.topology.outside {
            let addresses: Vec<IpAddr> = outside.addresses.iter().map(ipnet::IpNet::addr).collect();
            add(&outside.name, &outside.name, &addresses, &outside.ports);
        }
        let sinks = self.topology.sink.iter().map(|sink| SinkSpec {
            namespace: Namespace::named(self.topology.namespace_name(&sink.name)).path(),
            answers_as: sink.name.clone(),
            own: sink.addresses.clone(),
        });
        Spec {
            sinks: sinks.collect(),
            listens,
        }
    }
}

/// Acting.
impl Lab {
    /// One probe from a place.
    ///
    /// # Errors
    /// When the place is unknown or gone; what happened to the probe is in the outcome.
    pub fn probe(&self, from: &str, probe: Probe) -> Result<ProbeOutcome, LabError> {
        let mut outcomes = self.probe_each(from, &[probe])?;
        Ok(outcomes.pop().expect("invariant: an outcome for each probe"))
    }

    /// The same probe `count` times, each a new connection, on one thread. Outcomes are in the order of launching.
    ///
    /// # Errors
    /// As [`Lab::probe`].
    pub fn probe_many(&self, from: &str, probe: Probe, count: usize) -> Result<Vec<ProbeOutcome>, LabError> {
        self.probe_each(from, &vec![probe; count])
    }

    /// Many probes from one place on one thread. Outcomes are in the order of the probes.
    ///
    /// # Errors
    /// As [`Lab::probe`].
    pub fn probe_each(&self, from: &str, probes: &[Probe]) -> Result<Vec<ProbeOutcome>, LabError> {
        self.namespace(from)?.run(|| probe_all(probes))
    }

    /// New connections in the background, `rate` a second.
    ///
    /// # Errors
    /// As [`Lab::probe`].
    pub fn prober(&self, from: &str, probe: Probe, rate: u32) -> Result<Prober, LabError> {
        Prober::start(&self.namespace(from)?, probe, rate)
    }

    /// Asks an HTTP server (health, metrics) from a place.
    ///
    /// # Errors
    /// When there is no HTTP answer.
    pub fn http_get(
        &self,
        from: &str,
        server: SocketAddr,
        path: &str,
        timeout: Duration,
    ) -> Result<HttpAnswer, LabError> {
        process::http_get(&self.namespace(from)?, server, path, timeout)
    }

    /// More servers at a place, until the handle is dropped.
    ///
    /// # Errors
    /// When the address is taken or not the place's.
    pub fn serve(
        &self,
        place: &str,
        name: &str,
        sockets: &[(Proto, SocketAddr)],
    ) -> Result<Serving, LabError> {
        let namespace = self.namespace(place)?.path();
        let listens = sockets.iter().map(|(proto, address)| Listen {
            namespace: namespace.clone(),
            answers_as: name.to_owned(),
            proto: *proto,
            address: *address,
        });
        Serving::start(&Spec {
            listens: listens.collect(),
            sinks: vec![],
        })
    }

    /// Runs a command to its end; that it fails is an answer. In a pod it resolves names as the pod does, if the lab has
    /// a DNS server.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn exec(&self, place: &str, argv: &[&str]) -> Result<Finished, LabError> {
        let argv = self.as_at(place, argv);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        process::exec(&self.namespace(place)?, &argv)
    }

    /// The command as it is to be run at a place.
    pub(crate) fn as_at(&self, place: &str, argv: &[&str]) -> Vec<String> {
        let pod = self.topology.pod(place);
        // A pod on the host network has its node's resolver, unless it asks for another.
        let has_names = pod.is_some_and(|pod| pod.network == PodNetwork::Own);
        match Names::of(self).filter(|_| has_names) {
            Some(names) => names.wrap(argv),
            None => argv.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    /// Runs a command that must succeed and hands over what it printed.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub fn must_exec(&self, place: &str, argv: &[&str]) -> Result<String, LabError> {
        let finished = self.exec(place, argv)?;
        if finished.status.success() {
            return Ok(finished.stdout);
        }
        let tool = format!("`{}` at {place} ({})", argv.join(" "), finished.status);
        Err(LabError::Tool {
            tool,
            stderr: finished.stderr.trim().to_owned(),
        })
    }

    /// Starts a process at a place. Its output goes to `logs/NAME.log` in [`Lab::folder`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, place: &str, argv: &[&str], name: &str) -> Result<LabProcess, LabError> {
        let log = self.folder().join("logs").join(format!("{name}.log"));
        process::spawn(&self.namespace(place)?, argv, &log)
    }

    /// Starts a proxy on a node: `BINARY --manifests DIR --config FILE --hostname-override NODE`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_proxy(
        &self,
        node: &str,
        binary: &Path,
        manifests: &Path,
        config: &Path,
    ) -> Result<LabProcess, LabError> {
        let [binary, manifests, config] = [binary, manifests, config].map(|path| path.to_string_lossy());
        let argv = [
            &*binary,
            "--manifests",
            &manifests,
            "--config",
            &config,
            "--hostname-override",
            node,
        ];
        self.spawn(node, &argv, &format!("proxy-{node}"))
    }
}

fn probe_all(probes: &[Probe]) -> Vec<ProbeOutcome> {
    let mut driver = Driver::new();
    let mut outcomes: Vec<Option<ProbeOutcome>> = vec![None; probes.len()];
    let mut waiting = probes.iter().enumerate();
    let mut missing = probes.len();
    while missing > 0 {
        while driver.in_flight() < AT_ONCE
            && let Some((tag, probe)) = waiting.next()
        {
            driver.launch(tag, *probe);
        }
        for landed in driver.step(Duration::from_secs(1)) {
            if let Some(outcome) = outcomes.get_mut(landed.tag) {
                *outcome = Some(landed.outcome);
                missing -= 1;
            }
        }
    }
    outcomes.into_iter().flatten().collect()
}
