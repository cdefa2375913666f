//! Names for a lab's pods: dnsmasq in the pods behind the cluster's DNS Service, and what a pod's resolver is told.
//!
//! The servers answer `SERVICE.NAMESPACE.svc.cluster.local` from the objects that the proxies read: the cluster IPs of
//! a Service, or of a headless one its ready endpoints. Pods ask through the Service's cluster IP, so look-ups cross the
//! proxy's rules. A command in a pod ([`Names::wrap`]) sees its own `/etc/resolv.conf` in a mount namespace of its own;
//! the machine's stays what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{list, text};
use crate::{Lab, LabError, LabProcess};

/// What names of Services end with.
pub const DOMAIN: &str = "cluster.local";

/// The program that answers (Debian: dnsmasq-base).
pub const PROGRAM: &str = "dnsmasq";

/// How long a server may take to start, or to read its names again.
const READY: Duration = Duration::from_secs(10);

/// Runs a command with the files of `$1` in place of `/etc`'s. Where one of them is missing in `/etc` or a link to
/// nowhere, nothing can be mounted on it: then the files are laid over all of `/etc`. A cache of names would answer for
/// the machine.
const INSIDE: &str = r#"for f in resolv.conf nsswitch.conf; do
  mount --bind "$1/$f" "/etc/$f" 2>/dev/null ||
    mount -t overlay -o "lowerdir=$1:/etc" overlay /etc || exit 125
done
[ ! -d /run/nscd ] || mount -t tmpfs tmpfs /run/nscd || exit 125
shift
exec "$@""#;

/// Names and their addresses.
pub type Records = BTreeMap<String, BTreeSet<IpAddr>>;

/// What the DNS server of a cluster with these objects (a `List`) answers.
///
/// Services of type `ExternalName`, names of single pods and SRV records are not among it.
pub fn records(objects: &Value) -> Records {
    let items: Vec<&Value> = list(objects, "/items").collect();
    let of_kind = |kind: &'static str| {
        let items = items.iter().copied();
        items.filter(move |item| text(item, "/kind") == Some(kind))
    };
    let mut records = Records::new();
    for service in of_kind("Service") {
        let Some((namespace, name)) = name_of(service) else {
            continue;
        };
        let headless = text(service, "/spec/clusterIP") == Some("None");
        let addresses = if headless {
            let slices = of_kind("EndpointSlice").filter(|slice| belongs(slice, namespace, name));
            slices.flat_map(ready).collect()
        } else {
            let ips = list(service, "/spec/clusterIPs").filter_map(Value::as_str);
            ips.filter_map(|ip| ip.parse().ok()).collect::<BTreeSet<_>>()
        };
        if !addresses.is_empty() {
            records.insert(format!("{name}.{namespace}.svc.{DOMAIN}"), addresses);
        }
    }
    records
}

fn name_of(item: &Value) -> Option<(&str, &str)> {
    let namespace = text(item, "/metadata/namespace").unwrap_or("default");
    Some((namespace, text(item, "/metadata/name")?))
}

fn belongs(slice: &Value, namespace: &str, service: &str) -> bool {
    let of = text(slice, "/metadata/labels/kubernetes.io~1service-name");
    of == Some(service) && name_of(slice).is_some_and(|(own, _)| own == namespace)
}

/// The addresses of a slice's endpoints that are ready; without a word on that they are.
fn ready(slice: &Value) -> impl Iterator<Item = IpAddr> + '_ {
    let ready = |one: &&Value| one.pointer("/conditions/ready") != Some(&Value::Bool(false));
    let addresses = list(slice, "/endpoints")
        .filter(ready)
        .flat_map(|one| list(one, "/addresses"));
    addresses.filter_map(|address| address.as_str()?.parse().ok())
}

/// In the form of `/etc/hosts`, which dnsmasq reads.
fn hosts(records: &Records) -> String {
    let mut file = String::new();
    for (name, addresses) in records {
        for address in addresses {
            _ = writeln!(file, "{address} {name}");
        }
    }
    file
}

/// What the kubelet writes for a pod of the namespace `default`.
pub fn resolv_conf(server: IpAddr) -> String {
    format!("search default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\nnameserver {server}\noptions ndots:5\n")
}

/// The files that a lab's pods resolve names by, in the lab's folder.
#[derive(Clone, Debug)]
pub struct Names {
    folder: PathBuf,
}

impl Names {
    /// Those of a lab, if it has a DNS server.
    pub fn of(lab: &Lab) -> Option<Names> {
        let folder = lab.folder().join("dns");
        folder.join("resolv.conf").exists().then_some(Names { folder })
    }

    /// The command that runs `argv` as a pod's process would: with the pod's resolver.
    pub fn wrap(&self, argv: &[&str]) -> Vec<String> {
        let folder = self.folder.to_string_lossy();
        let unshare = ["unshare", "--mount", "--propagation", "private"];
        let inside = ["sh", "-c", INSIDE, "sh", &folder];
        let words = unshare.iter().chain(&inside).chain(argv);
        words.map(|word| (*word).to_owned()).collect()
    }
}

/// Somebody who asked for a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The pod that was asked.
    pub server: String,
    /// The client, as that pod saw it.
    pub client: IpAddr,
    /// The name.
    pub name: String,
}

/// The DNS servers of a lab; they end when this is dropped.
pub struct Dns {
    folder: PathBuf,
    servers: Vec<Server>,
}

/// One of them.
struct Server {
    pod: String,
    process: LabProcess,
    /// How many queries have been told.
    told: usize,
}

impl Dns {
    /// Starts one server in each of these pods, which must have nothing else at port 53, and has pods ask them at
    /// `cluster_ip`, the address of the Service before them.
    ///
    /// # Errors
    /// When dnsmasq is missing or does not start; with what it said.
    pub fn start(lab: &Lab, pods: &[&str], cluster_ip: IpAddr, objects: &Value) -> Result<Dns, LabError> {
        let folder = lab.folder().join("dns");
        let files = [
            ("hosts", hosts(&records(objects))),
            ("resolv.conf", resolv_conf(cluster_ip)),
            ("nsswitch.conf", "hosts: dns\n".to_owned()),
        ];
        fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, error))?;
        for (name, text) in files {
            write(&folder.join(name), &text)?;
        }
        let servers = pods.iter().map(|pod| {
            Ok(Server {
                pod: (*pod).to_owned(),
                process: serve(lab, pod, &folder)?,
                told: 0,
            })
        });
        let mut dns = Dns {
            servers: servers.collect::<Result<_, LabError>>()?,
            folder,
        };
        dns.wait_for_readings(1)?;
        Ok(dns)
    }

    /// Has all servers answer from these objects, and returns when they do.
    ///
    /// # Errors
    /// When a server has ended or reads nothing.
    pub fn publish(&mut self, objects: &Value) -> Result<(), LabError> {
        let before = self.servers.iter().map(|server| readings(&server.process));
        let before = before.max().unwrap_or_default();
        write(&self.folder.join("hosts"), &hosts(&records(objects)))?;
        for server in &mut self.servers {
            server.process.signal(Signal::HUP)?;
        }
        self.wait_for_readings(before + 1)
    }

    /// Who has asked since the last call. Of one server in the order in which it was asked.
    pub fn new_queries(&mut self) -> Vec<Query> {
        let mut new = vec![];
        for server in &mut self.servers {
            let log = server.process.log();
            let all: Vec<Query> = log.lines().filter_map(|line| query(&server.pod, line)).collect();
            new.extend(all.iter().skip(server.told).cloned());
            server.told = all.len();
        }
        new
    }

    fn wait_for_readings(&mut self, count: usize) -> Result<(), LabError> {
        let deadline = Instant::now() + READY;
        for Server { pod, process, .. } in &mut self.servers {
            while readings(process) < count {
                if process.ended()?.is_some() || Instant::now() > deadline {
                    return Err(LabError::Servers(format!(
                        "{PROGRAM} at {pod}: {}",
                        process.log()
                    )));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

/// How often a server has read its names: it says so each time.
fn readings(server: &LabProcess) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains(": read ")).count()
}

/// Reads `dnsmasq[7]: query[A] NAME from CLIENT`.
fn query(pod: &str, line: &str) -> Option<Query> {
    let (_, rest) = line.split_once(": query[")?;
    let mut words = rest.split_whitespace().skip(1);
    let name = words.next()?.to_owned();
    let client = words.nth(1)?.parse().ok()?;
    Some(Query {
        server: pod.to_owned(),
        client,
        name,
    })
}

fn serve(lab: &Lab, pod: &str, folder: &Path) -> Result<LabProcess, LabError> {
    let address = lab.topology().pod(pod).and_then(|pod| pod.addresses.first());
    let address = address.ok_or_else(|| LabError::Topology(format!("no pod {pod} to answer for names")))?;
    let listen = format!("--listen-address={address}");
    let names = format!("--addn-hosts={}", folder.join("hosts").display());
    let local = format!("--local=/{DOMAIN}/");
    let argv = [
        PROGRAM,
        "--keep-in-foreground",
        // Nothing of the machine's, and no other user: in a user namespace there is none.
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
        "--group=",
        "--pid-file=",
        "--bind-interfaces",
        &listen,
        &names,
        &local,
        "--log-queries",
        "--log-facility=-",
    ];
    lab.spawn(pod, &argv, &format!("dns-{pod}"))
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(|error| failed("write", path, error))
}

fn failed(verb: &str, path: &Path, error: std::io::Error) -> LabError {
    LabError::system(format!("{verb} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(namespace: &str, name: &str, ips: &[&str]) -> Value {
        let spec = json!({"clusterIP": ips[0], "clusterIPs": ips});
        json!({"kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    }

    #[test]
    fn a_service_has_its_cluster_ips_and_a_headless_one_its_ready_endpoints() {
        let slice = |namespace: &str, ready: Value, address: &str| {
            let labels = json!({"kubernetes.io/service-name": "db"});
            json!({"kind": "EndpointSlice",
                "metadata": {"namespace": namespace, "name": "db-1", "labels": labels},
                "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}]})
        };
        let objects = json!({"items": [
            service("default", "web", &["10.1.0.1", "fd00::1"]),
            service("shop", "web", &["10.1.0.2"]),
            service("shop", "db", &["None"]),
            service("shop", "gone", &["None"]),
            slice("shop", json!(true), "10.244.1.3"),
            slice("shop", json!(null), "10.244.1.4"),
            slice("shop", json!(false), "10.244.1.5"),
            slice("default", json!(true), "10.244.1.6"),
            {"kind": "Service", "metadata": {"name": "else"}, "spec": {"externalName": "example.org"}},
        ]});
        let told = hosts(&records(&objects));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "10.244.1.3 db.shop.svc.cluster.local",
                "10.244.1.4 db.shop.svc.cluster.local",
                "10.1.0.1 web.default.svc.cluster.local",
                "fd00::1 web.default.svc.cluster.local",
                "10.1.0.2 web.shop.svc.cluster.local",
            ]
        );
    }

    #[test]
    fn who_asked_is_read_from_what_the_server_says() {
        let line = "dnsmasq[71]: query[A] web.default.svc.cluster.local from 10.244.1.7";
        let asked = query("kube-dns-b", line).unwrap();
        assert_eq!(asked.name, "web.default.svc.cluster.local");
        assert_eq!(asked.client, "10.244.1.7".parse::<IpAddr>().unwrap());
        for other in [
            "",
            "dnsmasq[71]: read hosts - 5 names",
            "dnsmasq[71]: /hosts web is 10.1.0.1",
        ] {
            assert_eq!(query("kube-dns-b", other), None, "{other}");
        }
    }
}
