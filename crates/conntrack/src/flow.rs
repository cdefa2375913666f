//! One entry of the connection table, as far as service NAT can be told from it.

use model::Protocol;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A flow with ports. The names are a client's view of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Source of the first packet.
    pub client: SocketAddr,
    /// Destination of the first packet, before NAT: the service's address, if it is a service's flow.
    pub destination: SocketAddr,
    /// Who is expected to answer: the endpoint that NAT chose, or `destination` itself without NAT.
    pub answerer: SocketAddr,
}

impl Flow {
    /// Whether the destination was rewritten.
    pub fn is_translated(&self) -> bool {
        self.answerer != self.destination
    }
}

/// `UDP 10.0.0.5:4000 -> 10.96.0.10:53 => 10.0.2.7:53`.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow {
            protocol,
            client,
            destination,
            answerer,
        } = self;
        write!(f, "{protocol} {client} -> {destination}")?;
        if self.is_translated() {
            write!(f, " => {answerer}")?;
        }
        Ok(())
    }
}

/// A line that is no entry of the connection table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowError {
    /// What is missing or wrong.
    pub reason: &'static str,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for FlowError {}

/// Reading what `conntrack -L` prints.
impl Flow {
    /// Reads one line of `conntrack -L` (or of `/proc/net/nf_conntrack`). `None` for protocols that no Service has.
    ///
    /// # Errors
    /// When a tuple is missing or malformed.
    pub fn parse_line(line: &str) -> Result<Option<Flow>, FlowError> {
        let words = line.split_ascii_whitespace();
        let Some(protocol) = words.clone().take(4).find_map(protocol_of_word) else {
            return Ok(None);
        };
        let mut tuples = [Tuple::default(); 2];
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                continue;
            };
            // The first direction's keys come first; each key comes once per direction.
            for tuple in &mut tuples {
                if tuple.take(key, value)? == Taken::Yes {
                    break;
                }
            }
        }
        let [original, reply] = tuples;
        Ok(Some(Flow {
            protocol,
            client: original.source()?,
            destination: original.destination()?,
            answerer: reply.source()?,
        }))
    }
}

fn protocol_of_word(word: &str) -> Option<Protocol> {
    Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.as_lower() == word)
}

#[derive(Clone, Copy, Default)]
struct Tuple {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    sport: Option<u16>,
    dport: Option<u16>,
}

/// Whether a word belonged to a tuple that lacked it.
#[derive(PartialEq, Eq)]
enum Taken {
    Yes,
    No,
}

impl Tuple {
    fn take(&mut self, key: &str, value: &str) -> Result<Taken, FlowError> {
        match key {
            "src" => fill(&mut self.src, value),
            "dst" => fill(&mut self.dst, value),
            "sport" => fill(&mut self.sport, value),
            "dport" => fill(&mut self.dport, value),
            _ => Ok(Taken::No),
        }
    }

    fn source(&self) -> Result<SocketAddr, FlowError> {
        socket(self.src, self.sport)
    }

    fn destination(&self) -> Result<SocketAddr, FlowError> {
        socket(self.dst, self.dport)
    }
}

fn fill<T: std::str::FromStr>(slot: &mut Option<T>, value: &str) -> Result<Taken, FlowError> {
    if slot.is_some() {
        return Ok(Taken::No);
    }
    let parsed = value.parse().map_err(|_| FlowError {
        reason: "an address or port that is none",
    })?;
    *slot = Some(parsed);
    Ok(Taken::Yes)
}

fn socket(ip: Option<IpAddr>, port: Option<u16>) -> Result<SocketAddr, FlowError> {
    match (ip, port) {
        (Some(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        _ => Err(FlowError {
            reason: "a direction lacks an address or a port",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_conntrack_gives_the_flow_before_and_after_nat() {
        let line = "udp      17 29 src=10.244.1.5 dst=10.96.7.250 sport=50004 dport=6858 [UNREPLIED] \
                    src=10.244.2.50 dst=10.244.1.5 sport=6859 dport=50004 mark=0 use=1";
        let flow = Flow::parse_line(line).unwrap().unwrap();
        let want = "UDP 10.244.1.5:50004 -> 10.96.7.250:6858 => 10.244.2.50:6859";
        assert_eq!(flow.to_string(), want);
    }

    #[test]
    fn a_line_of_proc_with_ipv6_is_read() {
        let line = "ipv6     10 udp      17 29 src=fd00::1 dst=fd01::2 sport=1 dport=2 src=fd01::2 dst=fd00::1 \
                    sport=2 dport=1 [ASSURED] mark=0 zone=0 use=2";
        let flow = Flow::parse_line(line).unwrap().unwrap();
        assert_eq!(flow.to_string(), "UDP [fd00::1]:1 -> [fd01::2]:2");
        assert!(!flow.is_translated());
    }

    #[test]
    fn icmp_is_no_flow_of_a_service_and_half_a_line_is_an_error() {
        let icmp = "icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=1 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=1";
        assert_eq!(Flow::parse_line(icmp), Ok(None));
        assert!(Flow::parse_line("udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2").is_err());
        assert!(Flow::parse_line("udp 17 29 src=10.0.0.one").is_err());
    }
}
