//! What a request asks for, and which requests are refused.
//!
//! The page shows a cluster's names and addresses, so that a web site elsewhere must not be able to read it through the
//! browser of an operator. The same-origin policy sees to that for honest names; a site whose name is made to lead here
//! (DNS rebinding) gives itself away by the Host header.

use crate::answer::Answer;
use explain::{From, Question, To};
use model::{Protocol, ServiceName};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The longest value of a query, in bytes. Names of two labels of 253 bytes fit.
const LONGEST: usize = 600;
/// Rows of one answer at most.
const MOST_ROWS: usize = 500;
/// Rows of one answer when nobody says.
const USUAL_ROWS: usize = 100;

/// The parts of an HTTP request that matter here.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The Host header, or the authority of the target.
    pub host: Option<&'a str>,
    /// The path.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
}

/// Names by which this server may be called, beside `localhost` and every IP address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// Such as the Node's name and the host's.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        Names(names.into_iter().map(str::to_ascii_lowercase).collect())
    }

    /// Whether a Host header names this server.
    fn are(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((ip, port)) if is_port(port) => return ip.parse::<IpAddr>().is_ok(),
                _ => return false,
            },
            None => match host.split_once(':') {
                Some((name, port)) if !port.bytes().all(|b| b.is_ascii_digit()) || name.is_empty() => {
                    return false;
                }
                Some((name, _)) => name,
                None => host,
            },
        };
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.0.contains(&name)
    }
}

fn is_port(rest: &str) -> bool {
    rest.is_empty()
        || rest
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// One of the page's files, or a refusal: the answer is known.
    Known(Answer),
    /// Something about the last changes.
    Changes(AboutChanges),
    /// Something about objects and rules.
    World(AboutWorld),
}

/// What is asked about the last changes: those that have all these words, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AboutChanges {
    /// Words in lower case.
    pub words: Vec<String>,
    /// How many at most.
    pub limit: usize,
}

/// What is asked about objects and rules.
#[derive(Clone, Debug, PartialEq)]
pub enum AboutWorld {
    /// How many there are of everything.
    Summary,
    /// Services, by name.
    Services {
        /// Words in lower case, which all of them have.
        words: Vec<String>,
        /// The word of a state, or `noted`.
        state: Option<String>,
        /// How many are passed over.
        offset: usize,
        /// How many at most.
        limit: usize,
    },
    /// One Service.
    Service(ServiceName),
    /// Notes about objects.
    Notes {
        /// Words in lower case, which all of them have.
        words: Vec<String>,
        /// How many at most.
        limit: usize,
    },
    /// What becomes of a packet.
    Path(Question),
}

/// Reads a request.
pub fn read(request: &Request<'_>, names: &Names) -> Asked {
    asked(request, names).unwrap_or_else(Asked::Known)
}

fn asked(request: &Request<'_>, names: &Names) -> Result<Asked, Answer> {
    if !request.host.is_some_and(|host| names.are(host)) {
        return Err(Answer::refused(
            421,
            "the Host header names another server: use an IP address, localhost, or the node's name",
        ));
    }
    if !["GET", "HEAD"].contains(&request.method) {
        return Err(Answer::reading_only());
    }
    if let Some(answer) = file(request.path) {
        return Ok(Asked::Known(answer));
    }
    let query = Query::read(request.query.unwrap_or_default())?;
    let asked = match request.path.strip_prefix("/explore/api/").unwrap_or_default() {
        "summary" => Asked::World(AboutWorld::Summary),
        "services" => Asked::World(AboutWorld::Services {
            words: query.words(),
            state: query.text("state").map(str::to_owned),
            offset: query.number("offset", 0)?,
            limit: query.limit()?,
        }),
        "service" => Asked::World(AboutWorld::Service(query.service()?)),
        "notes" => Asked::World(AboutWorld::Notes {
            words: query.words(),
            limit: query.limit()?,
        }),
        "path" => Asked::World(AboutWorld::Path(query.question()?)),
        "changes" => Asked::Changes(AboutChanges {
            words: query.words(),
            limit: query.limit()?,
        }),
        _ => return Err(Answer::refused(404, "there is no such page")),
    };
    Ok(asked)
}

fn file(path: &str) -> Option<Answer> {
    Some(match path {
        "/explore" => Answer::moved("/explore/"),
        "/explore/" => Answer::file("text/html; charset=utf-8", include_str!("page/index.html")),
        "/explore/explorer.js" => {
            Answer::file("text/javascript; charset=utf-8", include_str!("page/explorer.js"))
        }
        "/explore/explorer.css" => Answer::file("text/css; charset=utf-8", include_str!("page/explorer.css")),
        _ => return None,
    })
}

/// A query's values by name; of several with one name the last counts.
struct Query(BTreeMap<String, String>);

impl Query {
    fn read(text: &str) -> Result<Query, Answer> {
        let mut values = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            if value.len() > LONGEST {
                return Err(Answer::refused(400, "a value of the query is too long"));
            }
            values.insert(decoded(name), value);
        }
        Ok(Query(values))
    }

    /// A value that is given and not empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
    }

    fn words(&self) -> Vec<String> {
        let text = self.text("search").unwrap_or_default().to_lowercase();
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn number(&self, name: &str, usual: usize) -> Result<usize, Answer> {
        let Some(text) = self.text(name) else {
            return Ok(usual);
        };
        text.parse()
            .map_err(|_| Answer::refused(400, &format!("{name} is no number")))
    }

    fn limit(&self) -> Result<usize, Answer> {
        Ok(self.number("limit", USUAL_ROWS)?.min(MOST_ROWS))
    }

    fn service(&self) -> Result<ServiceName, Answer> {
        let name = self.text("name").and_then(|name| name.split_once('/'));
        match name {
            Some((namespace, name)) => Ok(ServiceName::new(namespace, name)),
            None => Err(Answer::refused(400, "which Service? Give name=NAMESPACE/NAME")),
        }
    }

    fn question(&self) -> Result<Question, Answer> {
        let wrong = |why: String| Answer::refused(400, &why);
        let from: From = self.text("from").unwrap_or("pod").parse().map_err(wrong)?;
        let to = self.text("to").unwrap_or_default();
        let to: To = to.parse().map_err(wrong)?;
        let protocol = match self.text("protocol").map(str::to_ascii_lowercase).as_deref() {
            None => None,
            Some("tcp") => Some(Protocol::Tcp),
            Some("udp") => Some(Protocol::Udp),
            Some("sctp") => Some(Protocol::Sctp),
            Some(_) => return Err(Answer::refused(400, "protocol is tcp, udp or sctp")),
        };
        Ok(Question {
            from,
            to,
            protocol,
            in_interface: None,
        })
    }
}

/// Percent-encoding and `+` undone. What is no UTF-8 afterwards becomes replacement characters.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).filter(|_| *first == b'%').and_then(hex);
        bytes.push(match (first, hex) {
            (_, Some(byte)) => byte,
            (b'+', None) => b' ',
            (other, None) => *other,
        });
        rest = if hex.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(host: Option<&str>, method: &str, path: &str, query: &str) -> Asked {
        let request = Request {
            method,
            host,
            path,
            query: Some(query),
        };
        read(&request, &Names::new(["node-a"]))
    }

    fn status(asked: &Asked) -> u16 {
        match asked {
            Asked::Known(answer) => answer.status,
            Asked::Changes(_) | Asked::World(_) => 200,
        }
    }

    #[test]
    fn only_a_host_header_that_names_this_server_is_answered() {
        let own = [
            "127.0.0.1:10249",
            "127.0.0.1",
            "[::1]:10249",
            "[fd00::7]",
            "localhost:1",
            "LocalHost",
            "node-a",
            "Node-A:10249",
            "192.0.2.11:10249",
        ];
        for host in own {
            assert_eq!(status(&get(Some(host), "GET", "/explore/", "")), 200, "{host}");
        }
        let others = [
            "evil.example",
            "evil.example:10249",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "[::1]evil",
            "node-a:evil",
            "127.0.0.1:1@evil.example",
            ":10249",
            "",
            "[]",
        ];
        for host in others {
            assert_eq!(status(&get(Some(host), "GET", "/explore/", "")), 421, "{host}");
            assert_eq!(
                status(&get(Some(host), "GET", "/explore/api/services", "")),
                421,
                "{host}"
            );
        }
        assert_eq!(status(&get(None, "GET", "/explore/", "")), 421);
    }

    #[test]
    fn only_reading_is_possible() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get"] {
            for path in ["/explore/", "/explore/api/services", "/explore/api/path"] {
                let Asked::Known(answer) = get(Some("localhost"), method, path, "") else {
                    panic!("{method} {path} was taken");
                };
                assert_eq!(
                    (answer.status, answer.header),
                    (405, Some(("allow", "GET, HEAD")))
                );
            }
        }
        assert_eq!(status(&get(Some("localhost"), "HEAD", "/explore/", "")), 200);
    }

    #[test]
    fn queries_are_read_and_bounded() {
        let services = get(
            Some("::1").map(|_| "[::1]"),
            "GET",
            "/explore/api/services",
            "search=Shop%2F+C%61rt&limit=9999&offset=7&state=failing",
        );
        let Asked::World(AboutWorld::Services {
            words,
            state,
            offset,
            limit,
        }) = services
        else {
            panic!("no services");
        };
        assert_eq!(words, ["shop/", "cart"]);
        assert_eq!((state.as_deref(), offset, limit), (Some("failing"), 7, MOST_ROWS));
        let wrong = [
            ("/explore/api/services", "limit=x".to_owned()),
            (
                "/explore/api/services",
                format!("search={}", "a".repeat(LONGEST + 1)),
            ),
            ("/explore/api/service", "name=web".to_owned()),
            ("/explore/api/path", "from=pod&to=".to_owned()),
            ("/explore/api/path", "from=%00&to=shop/web".to_owned()),
            (
                "/explore/api/path",
                "from=pod&to=shop/web&protocol=icmp".to_owned(),
            ),
        ];
        for (path, query) in wrong {
            assert_eq!(
                status(&get(Some("localhost"), "GET", path, &query)),
                400,
                "{path}?{query}"
            );
        }
        assert_eq!(
            status(&get(
                Some("localhost"),
                "GET",
                "/explore/api/../../etc/passwd",
                ""
            )),
            404
        );
    }

    #[test]
    fn percent_signs_that_mean_nothing_stay() {
        assert_eq!(decoded("a%20b+c%"), "a b c%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("%ff"), "\u{fffd}");
        assert_eq!(decoded("%+1"), "% 1");
    }
}
