//! The answer for programs. The field names are an interface: add, do not rename.

use super::describe;
use model::{Family, Origin, Outcome};
use path::{Answer, Claim, Host, Source, Step, Way};
use serde::{Serialize, Serializer};
use std::io::Write;
use traced::{Did, Event, Place};

#[derive(Serialize)]
struct AnswerJson<'a> {
    packet: PacketJson,
    /// What all ways together amount to; absent when they end differently.
    outcome: Option<OutcomeJson>,
    /// The different outcomes, when there is more than one.
    outcomes: Vec<OutcomeJson>,
    /// What could not be decided.
    open: Vec<String>,
    /// How many ways there are.
    ways_total: usize,
    /// How many of them, the last ones, are left out of `ways`; what they end in is in the outcome all the same.
    ways_left_out: usize,
    ways: Ways<'a>,
}

/// The ways, made one at a time: thousands of them with all their steps need not be in memory together.
struct Ways<'a> {
    host: &'a Host,
    answer: &'a Answer,
    /// So many of them.
    told: usize,
    /// Of each so many steps.
    steps: usize,
}

impl Serialize for Ways<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ways = self.answer.ways.iter().take(self.told);
        serializer.collect_seq(ways.map(|way| self.way_json(way)))
    }
}

/// How much is told. An answer may have 65,536 ways with thousands of steps each, which nobody has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    ways: usize,
    /// Steps and conditions; of a first way that has more, the first ones are told.
    steps: usize,
    /// Steps of one way.
    of_way: usize,
}

impl Room {
    /// For one answer: as many ways as somebody wants (0 for all), or as the text's list has, with 20 MB of steps or so.
    pub(super) fn of(full: Option<usize>) -> Room {
        const USUAL: Room = Room {
            ways: 1000,
            steps: 50_000,
            of_way: 10_000,
        };
        match full {
            None => USUAL,
            Some(0) => Room {
                ways: usize::MAX,
                steps: usize::MAX,
                of_way: usize::MAX,
            },
            Some(ways) => Room {
                ways,
                steps: usize::MAX,
                of_way: usize::MAX,
            },
        }
    }

    /// For a list of answers.
    pub(super) fn of_list(full: Option<usize>) -> Room {
        Room {
            steps: Room::of(full).steps.saturating_mul(4),
            ..Room::of(full)
        }
    }

    /// How many ways of an answer have room, and the steps for which there is room then.
    fn take(self, answer: &Answer) -> (usize, usize) {
        let mut left = self.steps;
        let mut told = 0;
        for way in answer.ways.iter().take(self.ways) {
            let size = answer.steps(way).len().min(self.of_way) + answer.claims(way).len();
            if size > left && told > 0 {
                break;
            }
            left = left.saturating_sub(size);
            told += 1;
        }
        (told, left)
    }
}

#[derive(Serialize)]
struct PacketJson {
    protocol: &'static str,
    from: String,
    to: String,
    sent_here: bool,
    in_interface: Option<String>,
    mark: u32,
}

#[derive(Serialize)]
struct OutcomeJson {
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointJson>,
}

#[derive(Serialize)]
struct EndpointJson {
    endpoint: String,
    masquerade: bool,
}

#[derive(Serialize)]
struct WayJson {
    probability: f64,
    /// The probability of exactly these steps; smaller when the way stands for others that end alike.
    probability_of_steps: f64,
    conditions: Vec<ClaimJson>,
    end: EndJson,
    /// The destination that a rule gave it.
    translated: Option<String>,
    masquerade: bool,
    /// The source it ends with; absent when that is an address of the host that is not known.
    source: Option<String>,
    mark: u32,
    /// How many of its last steps are left out.
    #[serde(skip_serializing_if = "is_zero")]
    steps_left_out: usize,
    steps: Vec<StepJson>,
}

#[derive(Serialize)]
struct ConditionJson {
    condition: String,
    holds: bool,
}

#[derive(Serialize)]
struct ClaimJson {
    condition: String,
    holds: bool,
    /// How many more client lists in a row do not know the client either.
    #[serde(skip_serializing_if = "is_zero")]
    others: usize,
}

#[derive(Serialize)]
struct EndJson {
    kind: &'static str,
    text: String,
}

#[derive(Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
enum StepJson {
    Rule {
        #[serde(flatten)]
        rule: RuleJson,
        did: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// The rule that follows found an element of a set or map.
    Element {
        #[serde(flatten)]
        rule: RuleJson,
        set: String,
        element: String,
    },
    Perhaps {
        #[serde(flatten)]
        rule: RuleJson,
        conditions: Vec<ConditionJson>,
    },
    NotMatched {
        #[serde(flatten)]
        rule: RuleJson,
        failed: String,
    },
    Policy {
        hook: &'static str,
        table: String,
        chain: String,
        policy: &'static str,
    },
    Condition(ClaimJson),
    Chance {
        /// Of all choices in a row together.
        probability: f64,
        choices: usize,
    },
    Routing {
        to: String,
    },
}

#[derive(Serialize)]
struct RuleJson {
    hook: &'static str,
    table: String,
    chain: String,
    number: u32,
    text: String,
}

/// Writes the answer.
pub(super) fn write(out: &mut dyn Write, host: &Host, answer: &Answer, room: Room) -> anyhow::Result<()> {
    let (told, _) = room.take(answer);
    serde_json::to_writer_pretty(&mut *out, &convert(host, answer, (told, room.of_way)))
        .map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// The answer as a value, for lists of answers, which share the room.
pub(super) fn value(host: &Host, answer: &Answer, room: &mut Room) -> anyhow::Result<serde_json::Value> {
    let (told, left) = room.take(answer);
    room.steps = left;
    Ok(serde_json::to_value(convert(host, answer, (told, room.of_way)))?)
}

fn convert<'a>(host: &'a Host, answer: &'a Answer, (told, steps): (usize, usize)) -> AnswerJson<'a> {
    let packet = &answer.packet;
    let (outcome, outcomes, open) = match answer.outcome() {
        Ok(outcome) => (Some(outcome_json(&outcome)), Vec::new(), Vec::new()),
        Err(several) => (
            None,
            several.outcomes.iter().map(outcome_json).collect(),
            several.open.into_iter().collect(),
        ),
    };
    AnswerJson {
        packet: PacketJson {
            protocol: packet.protocol.as_lower(),
            from: std::net::SocketAddr::new(packet.src, packet.src_port).to_string(),
            to: packet.dst.to_string(),
            sent_here: packet.origin == Origin::Host,
            in_interface: match &packet.origin {
                Origin::Interface(name) if !name.is_empty() => Some(name.to_string()),
                _ => None,
            },
            mark: packet.mark,
        },
        outcome,
        outcomes,
        open,
        ways_total: answer.ways.len(),
        ways_left_out: answer.ways.len() - told,
        ways: Ways {
            host,
            answer,
            told,
            steps,
        },
    }
}

fn outcome_json(outcome: &Outcome) -> OutcomeJson {
    let kind = match outcome {
        Outcome::Delivered(_) => "delivered",
        Outcome::Rejected => "rejected",
        Outcome::Dropped => "dropped",
        Outcome::Accepted => "accepted",
        Outcome::Untouched => "untouched",
    };
    let endpoints = match outcome {
        Outcome::Delivered(to) => to
            .iter()
            .map(|delivery| EndpointJson {
                endpoint: delivery.endpoint.to_string(),
                masquerade: delivery.masquerade,
            })
            .collect(),
        _ => Vec::new(),
    };
    OutcomeJson { kind, endpoints }
}

impl Ways<'_> {
    fn way_json(&self, way: &Way) -> WayJson {
        let Ways { host, answer, .. } = *self;
        let steps = answer.steps(way);
        WayJson {
            probability: way.state.chance,
            probability_of_steps: answer.chance_of_steps(way),
            conditions: answer.claims(way).iter().map(claim_json).collect(),
            end: EndJson {
                kind: describe::end_kind(&way.end),
                text: describe::end(&way.end),
            },
            translated: way.translated.map(|to| to.to_string()),
            masquerade: way.source != Source::Kept,
            source: way.state.src.map(|ip| ip.to_string()),
            mark: way.state.mark.value(),
            steps_left_out: steps.len().saturating_sub(self.steps),
            steps: steps
                .iter()
                .take(self.steps)
                .map(|step| step_json(host, answer.packet.family(), step))
                .collect(),
        }
    }
}

fn claim_json(claim: &Claim<'_>) -> ClaimJson {
    ClaimJson {
        condition: claim.condition.to_string(),
        holds: claim.holds,
        others: claim.others,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn condition_json(condition: &traced::Condition, holds: bool) -> ConditionJson {
    ConditionJson {
        condition: condition.to_string(),
        holds,
    }
}

fn rule_json(host: &Host, family: Family, place: &Place) -> RuleJson {
    RuleJson {
        hook: place.hook.as_str(),
        table: place.table.to_string(),
        chain: place.chain.to_string(),
        number: place.rule,
        text: describe::rule_text(host, family, place),
    }
}

fn step_json(host: &Host, family: Family, step: &Step<'_>) -> StepJson {
    match step {
        Step::Routed(to) => StepJson::Routing {
            to: describe::routed(to),
        },
        Step::Claim(claim) => StepJson::Condition(claim_json(claim)),
        Step::Chance { probability, choices } => StepJson::Chance {
            probability: *probability,
            choices: *choices,
        },
        Step::Rules(event) => event_json(host, family, event),
    }
}

fn event_json(host: &Host, family: Family, event: &Event) -> StepJson {
    match event {
        Event::Met { place, did } => {
            let (before, after) = before_and_after(did);
            StepJson::Rule {
                rule: rule_json(host, family, place),
                did: describe::verb(did),
                before,
                after,
            }
        }
        Event::Found { place, set, element } => StepJson::Element {
            rule: rule_json(host, family, place),
            set: set.to_string(),
            element: element.to_string(),
        },
        Event::MayHaveMet { place, conditions } => StepJson::Perhaps {
            rule: rule_json(host, family, place),
            conditions: conditions
                .iter()
                .map(|(c, holds)| condition_json(c, *holds))
                .collect(),
        },
        Event::Passed { place, failed } => StepJson::NotMatched {
            rule: rule_json(host, family, place),
            failed: failed.to_string(),
        },
        Event::Policy {
            hook,
            table,
            chain,
            policy,
        } => StepJson::Policy {
            hook: hook.as_str(),
            table: table.to_string(),
            chain: chain.to_string(),
            policy: policy.as_str(),
        },
        // Steps hold these as claims and chances.
        Event::Assumed { condition, holds } => StepJson::Condition(ClaimJson {
            condition: condition.to_string(),
            holds: *holds,
            others: 0,
        }),
        Event::Chance { probability } => StepJson::Chance {
            probability: *probability,
            choices: 1,
        },
    }
}

fn before_and_after(did: &Did) -> (Option<String>, Option<String>) {
    match did {
        Did::Dnat { from, to } => (Some(from.to_string()), Some(to.to_string())),
        Did::Snat { from, to } => (from.map(|ip| ip.to_string()), to.map(|ip| ip.to_string())),
        Did::Marked { from, to } => (Some(format!("{from:#x}")), Some(format!("{to:#x}"))),
        _ => (None, None),
    }
}
