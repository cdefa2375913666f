//! How long a kernel takes with a large table:
//! `cargo bench -p kernel --bench large_table -- [services] [endpoints] [legacy] [fake]`.
//!
//! Runs itself in a network namespace of its own and prints milliseconds: elapsed, and processor time in user and in
//! system mode (this process and its tools, in steps of the system's clock tick). Nothing asserts on them.

use iptables::ast::{ChainName, Is, Match, PortRange, Ports, Proto, Rule, TableName, Target};
use iptables::plan::{Step, TableWrite};
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, FakeKernel, LiveKernel, RuleKernel, Scope};
use model::{Family, Protocol};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Instant;

const INSIDE: &str = "KPRS_BENCH_INSIDE";
/// Services of one step at the first load (performance.md).
const PER_STEP: u32 = 100;
const SERVICES: &str = "KUBE-SERVICES";

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if std::env::var_os(INSIDE).is_none() {
        let program = std::env::current_exe().expect("a benchmark is a program");
        let status = Command::new("unshare")
            .args([
                "--net",
                "--mount",
                "sh",
                "-c",
                "mount -t tmpfs none /run && exec \"$0\" \"$@\"",
            ])
            .arg(program)
            .args(&words)
            .env(INSIDE, "1")
            .status()
            .expect("unshare runs");
        std::process::exit(status.code().unwrap_or(1));
    }
    let number = |at: usize, default| {
        words
            .get(at)
            .and_then(|word| word.parse().ok())
            .unwrap_or(default)
    };
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let backend = if has("legacy") {
        Backend::Legacy
    } else {
        Backend::NfTables
    };
    let (services, endpoints) = (number(0, 1_000), number(1, 10));
    if has("fake") {
        return run(&mut FakeKernel::new(backend), "the fake", services, endpoints);
    }
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Use(backend)).expect("tools are installed");
    run(&mut LiveKernel::new(probe), "the kernel", services, endpoints);
}

fn run(kernel: &mut dyn RuleKernel, name: &str, services: u32, endpoints: u32) {
    let backend = kernel.backend();
    println!("{name}, {backend}: {services} services with {endpoints} endpoints");
    println!("milliseconds: elapsed, in user mode, in system mode");
    let per_step = if backend == Backend::Legacy {
        services
    } else {
        PER_STEP
    };
    timed("static chains", || {
        kernel.commit(Family::V4, &static_chains()).expect("a step");
    });
    timed("first load, all steps", || {
        for first in (0..services).step_by(per_step as usize) {
            let last = (first + per_step).min(services);
            kernel
                .commit(Family::V4, &load(first..last, endpoints))
                .expect("a step");
        }
    });
    timed("every chain read back", || {
        let mut rules = 0;
        kernel
            .observe(Family::V4, &Scope::Everything, &mut |_, _, chain| {
                rules += chain.rules.len();
            })
            .expect("read");
        assert!(rules > (services * endpoints) as usize);
    });
    let dispatch = Scope::Chains(TableName::Nat, [chain(SERVICES)].into());
    repeated(RUNS, "the dispatch chain read back", |_| {
        kernel
            .observe(Family::V4, &dispatch, &mut |_, _, _| {})
            .expect("read");
    });
    repeated(RUNS, "generation", |_| {
        let _ = kernel.generation().expect("told");
    });
    let at = |run: u32| run * (services / RUNS);
    repeated(RUNS, "one service's chain written anew", |run| {
        kernel
            .commit(Family::V4, &rewrite(at(run), endpoints))
            .expect("a step");
    });
    repeated(RUNS, "one dispatch rule deleted, its chains retired", |run| {
        kernel
            .commit(Family::V4, &unload(at(run), endpoints))
            .expect("a step");
    });
    repeated(RUNS, "one service added", |run| {
        kernel
            .commit(Family::V4, &load(services + run..services + run + 1, endpoints))
            .expect("a step");
    });
}

/// How often small things are done.
const RUNS: u32 = 10;

fn timed(what: &str, mut work: impl FnMut()) {
    repeated(1, what, |_| work());
}

/// The mean of some runs.
fn repeated(times: u32, what: &str, mut work: impl FnMut(u32)) {
    let (begun, before) = (Instant::now(), cpu());
    (0..times).for_each(&mut work);
    let each = f64::from(times);
    let elapsed = begun.elapsed().as_secs_f64() * 1_000.0 / each;
    let after = cpu();
    let (user, system) = (
        (after.user - before.user) / each,
        (after.system - before.system) / each,
    );
    println!("{elapsed:>10.1} {user:>10.1} {system:>10.1}  {what}");
}

/// Milliseconds of processor time.
struct Cpu {
    user: f64,
    system: f64,
}

/// Fields 14 to 17 of /proc/self/stat (proc(5)): user and system time, of this process and of its ended children.
fn cpu() -> Cpu {
    /// `USER_HZ` is 100 on every architecture that Kubernetes runs on.
    const TICK_MS: f64 = 10.0;
    let text = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let (_, fields) = text.rsplit_once(')').expect("the name is in parentheses");
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|field| field.parse().expect("a number"))
        .collect();
    Cpu {
        user: (ticks[0] + ticks[2]) * TICK_MS,
        system: (ticks[1] + ticks[3]) * TICK_MS,
    }
}

fn chain(name: &str) -> ChainName {
    ChainName::new(name).expect("short")
}

fn service_chain(service: u32) -> ChainName {
    chain(&format!("KUBE-SVC-{:016X}", spread(service)))
}

fn endpoint_chain(service: u32, endpoint: u32) -> ChainName {
    chain(&format!(
        "KUBE-SEP-{:016X}",
        spread(service.wrapping_mul(1_000).wrapping_add(endpoint))
    ))
}

/// Names in no order, as hashes are.
fn spread(number: u32) -> u64 {
    u64::from(number)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn write(write: TableWrite) -> Step {
    Step {
        write: [(TableName::Nat, write)].into(),
        ..Step::default()
    }
}

fn static_chains() -> Step {
    let mark = Rule::new(Target::Mark {
        value: 0x4000,
        mask: 0x4000,
    });
    write(TableWrite {
        chains: [
            (chain("KUBE-MARK-MASQ"), vec![mark]),
            (
                chain("KUBE-POSTROUTING"),
                vec![Rule::new(Target::Masquerade(Ports::RandomFully))],
            ),
            (chain(SERVICES), Vec::new()),
        ]
        .into(),
        insert: vec![
            (chain("PREROUTING"), Rule::new(Target::Jump(chain(SERVICES)))),
            (chain("OUTPUT"), Rule::new(Target::Jump(chain(SERVICES)))),
            (
                chain("POSTROUTING"),
                Rule::new(Target::Jump(chain("KUBE-POSTROUTING"))),
            ),
        ],
        ..TableWrite::default()
    })
}

fn address(base: [u8; 2], number: u32) -> IpAddr {
    let [_, _, high, low] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(base[0], base[1], high, low))
}

fn dispatch(service: u32) -> Rule {
    Rule {
        dst: Some(Is::Equal(address([172, 30], service).into())),
        protocol: Some(Is::Equal(Proto::Tcp)),
        matches: vec![
            Match::Comment(format!("ns/service-{service}:http cluster IP").into()),
            Match::Ports {
                module: Protocol::Tcp,
                src: None,
                dst: Some(Is::Equal(PortRange { first: 80, last: 80 })),
            },
        ],
        ..Rule::new(Target::Jump(service_chain(service)))
    }
}

fn endpoint_rules(service: u32, endpoint: u32) -> Vec<Rule> {
    let ip = address(
        [10, 128 + u8::try_from(endpoint % 64).expect("below 64")],
        service,
    );
    let comment = Match::Comment(format!("ns/service-{service}:http").into());
    let hairpin = Rule {
        src: Some(Is::Equal(ip.into())),
        matches: vec![comment.clone()],
        ..Rule::new(Target::Jump(chain("KUBE-MARK-MASQ")))
    };
    let tcp = Match::Ports {
        module: Protocol::Tcp,
        src: None,
        dst: None,
    };
    let translate = Rule {
        protocol: Some(Is::Equal(Proto::Tcp)),
        matches: vec![comment, tcp],
        ..Rule::new(Target::Dnat(SocketAddr::new(ip, 8080)))
    };
    vec![hairpin, translate]
}

fn service_rules(service: u32, endpoints: u32) -> Vec<Rule> {
    (0..endpoints)
        .map(|endpoint| {
            let mut matches = vec![Match::Comment(
                format!("ns/service-{service}:http -> endpoint").into(),
            )];
            let left = endpoints - endpoint;
            if left > 1 {
                matches.push(Match::Probability(0x8000_0000 / left));
            }
            Rule {
                matches,
                ..Rule::new(Target::Jump(endpoint_chain(service, endpoint)))
            }
        })
        .collect()
}

fn load(services: std::ops::Range<u32>, endpoints: u32) -> Step {
    let mut step = TableWrite::default();
    for service in services {
        for endpoint in 0..endpoints {
            step.chains.insert(
                endpoint_chain(service, endpoint),
                endpoint_rules(service, endpoint),
            );
        }
        step.chains
            .insert(service_chain(service), service_rules(service, endpoints));
        step.append.push((chain(SERVICES), dispatch(service)));
    }
    write(step)
}

fn rewrite(service: u32, endpoints: u32) -> Step {
    let chains = [(service_chain(service), service_rules(service, endpoints))].into();
    write(TableWrite {
        chains,
        ..TableWrite::default()
    })
}

fn unload(service: u32, endpoints: u32) -> Step {
    let mut retire = vec![(TableName::Nat, service_chain(service))];
    retire.extend((0..endpoints).map(|endpoint| (TableName::Nat, endpoint_chain(service, endpoint))));
    Step {
        delete: vec![(TableName::Nat, chain(SERVICES), dispatch(service))],
        retire,
        ..Step::default()
    }
}
