//! What was seen of a packet, for people and for programs.

use super::Followed;
use super::check::Check;
use super::names::Names;
use super::rulebook::{Witness, Witnessed};
use crate::trace::args::TraceArgs;
use crate::trace::{describe, text};
use comfy_table::Row;
use kernel::PacketView;
use kernel::passage::{Passage, Seen};
use model::Protocol;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use traced::Policy;

/// Tells of a packet in a table of the rules it met.
pub(super) fn text(
    out: &mut dyn Write,
    followed: &Followed,
    names: &Names,
    args: &TraceArgs,
) -> io::Result<()> {
    let passage = &followed.passage;
    let came = match (passage.sent_here, &followed.interfaces[0]) {
        (true, _) => " from this host".to_owned(),
        (false, Some(name)) => format!(" in {name}"),
        (false, None) => String::new(),
    };
    let later = match passage.is_first {
        Some(false) => ", of a known connection",
        _ => "",
    };
    let service = service(followed, names)
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    writeln!(
        out,
        "Packet {}, after {:.3} s: {}{service}{came}{later}",
        followed.number,
        followed.after.as_secs_f64(),
        view(&passage.before)
    )?;
    let mut table = text::table(args.width, ["HOOK", "TABLE", "CHAIN", "RULE", "WHAT", "PACKET"]);
    table.add_rows(followed.met.iter().filter_map(row));
    text::write_table(out, &table)?;
    writeln!(out, "=> {}", end(followed, names))?;
    if !followed.certain {
        writeln!(
            out,
            "rules were changed while it passed: what it met may be told in the words of others"
        )?;
    }
    match &followed.check {
        None => {}
        Some(Check::Agrees { chance, ways }) => {
            let chance = describe::chance(*chance);
            writeln!(
                out,
                "AGREES: one of the {ways} ways that trace gives, chance {chance}"
            )?;
        }
        Some(Check::Disagrees(why)) => writeln!(out, "DISAGREES: {why}")?,
        Some(Check::NotCompared(why)) => writeln!(out, "not compared: {why}")?,
    }
    writeln!(out)
}

fn row(met: &Witnessed) -> Option<Row> {
    let (number, what) = match &met.what {
        Witness::Rule { number, short, .. } => (number.to_string(), short.clone()),
        Witness::Gone { handle, verdict } => (
            "?".to_owned(),
            format!("[rule with handle {handle}, which is not there any more: {verdict}]"),
        ),
        Witness::NoSuchRule { number } => (
            number.to_string(),
            "[there is no rule of this number any more]".to_owned(),
        ),
        Witness::EmptyChain => return None,
        Witness::Policy(policy) => (String::new(), format!("policy {}", policy.as_str())),
    };
    Some(Row::from([
        met.hook.map(|hook| hook.to_string()).unwrap_or_default(),
        met.table.to_string(),
        met.chain.to_string(),
        number,
        what,
        changes(met).join(", "),
    ]))
}

/// What became of the packet, seen behind a rule.
fn changes(met: &Witnessed) -> Vec<String> {
    let mut all = Vec::new();
    if let Some((from, to)) = met.marked {
        all.push(format!("mark {from:#x} → {to:#x}"));
    }
    if let Some(became) = &met.became {
        all.push(format!("now {}", addresses(became)));
    }
    all
}

fn end(followed: &Followed, names: &Names) -> String {
    let passage = &followed.passage;
    let place = match &followed.interfaces[1] {
        Some(name) => format!("leaves through {name}"),
        None => "reaches this host's sockets".to_owned(),
    };
    match passage.seen {
        Seen::Dropped => "dropped or refused".to_owned(),
        Seen::NoMore => {
            "nothing more was told of it: no route, handed to a program, or events were lost".to_owned()
        }
        Seen::Through => {
            let whose = endpoint(passage, names);
            let whose = whose.map(|name| format!(" ({name})")).unwrap_or_default();
            let source = if from(&passage.after) == from(&passage.before) {
                "source kept".to_owned()
            } else {
                format!(
                    "source {} became {}",
                    side(from(&passage.before), passage.before.source),
                    side(from(&passage.after), passage.after.source)
                )
            };
            format!(
                "{place}; to {}{whose}, {source}",
                side(to(&passage.after), passage.after.destination)
            )
        }
    }
}

/// Tells of a packet in one line.
pub(super) fn json(out: &mut dyn Write, followed: &Followed, names: &Names) -> io::Result<()> {
    let passage = &followed.passage;
    let steps: Vec<Value> = followed.met.iter().map(step).collect();
    let value = json!({
        "packet": followed.number,
        "seconds": followed.after.as_secs_f64(),
        "protocol": protocol(passage.before.protocol),
        "from": side(from(&passage.before), passage.before.source),
        "to": side(to(&passage.before), passage.before.destination),
        "service": service(followed, names),
        "sent_here": passage.sent_here,
        "in_interface": followed.interfaces[0],
        "out_interface": followed.interfaces[1],
        "first_of_connection": passage.is_first,
        "from_after": side(from(&passage.after), passage.after.source),
        "to_after": side(to(&passage.after), passage.after.destination),
        "endpoint": endpoint(passage, names),
        "end": match passage.seen {
            Seen::Through => "through",
            Seen::Dropped => "dropped",
            Seen::NoMore => "not-seen",
        },
        "rules_certain": followed.certain,
        "check": followed.check.as_ref().map(check),
        "steps": steps,
    });
    serde_json::to_writer(&mut *out, &value)?;
    writeln!(out)
}

fn check(check: &Check) -> Value {
    match check {
        Check::Agrees { chance, ways } => json!({"result": "agrees", "probability": chance, "ways": ways}),
        Check::Disagrees(why) => json!({"result": "disagrees", "why": why}),
        Check::NotCompared(why) => json!({"result": "not-compared", "why": why}),
    }
}

fn step(met: &Witnessed) -> Value {
    let mut value = json!({
        "hook": met.hook.map(traced::Hook::as_str),
        "table": met.table.as_str(),
        "chain": met.chain.as_str(),
    });
    match &met.what {
        Witness::Rule {
            number,
            text,
            verdict,
            ..
        } => {
            value["number"] = json!(number);
            value["text"] = json!(text);
            value["verdict"] = json!(verdict);
        }
        Witness::Gone { handle, verdict } => {
            value["handle"] = json!(handle);
            value["verdict"] = json!(verdict);
        }
        Witness::NoSuchRule { number } => value["number"] = json!(number),
        Witness::Policy(policy) => value["policy"] = json!(policy.as_str()),
        Witness::EmptyChain => value["policy"] = json!(Policy::Accept.as_str()),
    }
    if let Some((_, to)) = met.marked {
        value["mark"] = json!(to);
    }
    if let Some(became) = &met.became {
        value["from_after"] = json!(side(from(became), became.source));
        value["to_after"] = json!(side(to(became), became.destination));
    }
    value
}

fn service<'a>(followed: &Followed, names: &'a Names) -> Option<&'a str> {
    let before = &followed.passage.before;
    names.service(before.protocol, to(before)?)
}

fn endpoint<'a>(passage: &Passage, names: &'a Names) -> Option<&'a str> {
    names.endpoint(passage.after.protocol, to(&passage.after)?)
}

fn protocol(number: u8) -> String {
    let known = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.number() == number);
    match (known, number) {
        (Some(protocol), _) => protocol.as_lower().to_owned(),
        (None, 1) => "icmp".to_owned(),
        (None, 58) => "icmpv6".to_owned(),
        (None, other) => format!("protocol {other}"),
    }
}

fn view(view: &PacketView) -> String {
    format!("{} {}", protocol(view.protocol), addresses(view))
}

fn addresses(view: &PacketView) -> String {
    format!(
        "{} -> {}",
        side(from(view), view.source),
        side(to(view), view.destination)
    )
}

fn from(view: &PacketView) -> Option<SocketAddr> {
    view.source_port.map(|port| SocketAddr::new(view.source, port))
}

fn to(view: &PacketView) -> Option<SocketAddr> {
    view.destination_port
        .map(|port| SocketAddr::new(view.destination, port))
}

fn side(socket: Option<SocketAddr>, ip: IpAddr) -> String {
    socket.map_or_else(|| ip.to_string(), |socket| socket.to_string())
}
