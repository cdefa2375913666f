//! The fault script: what goes wrong, with which requests, and how often.

use crate::asked::Asked;
use crate::reply::{Answer, Body, Part, Reply};
use futures::stream::{self, BoxStream, StreamExt as _};
use std::time::Duration;

/// Something that goes wrong.
pub struct Fault {
    /// The verb of the requests that it meets, as RBAC rules spell it: `list`, `watch`, `create`, `patch` ...
    pub verb: &'static str,
    /// Their resource: the plural.
    pub resource: &'static str,
    /// How many such requests it meets.
    pub times: usize,
    /// What goes wrong.
    pub what: What,
}

/// What goes wrong with a request.
pub enum What {
    /// This is answered instead.
    Instead(Box<dyn Fn() -> Reply + Send>),
    /// The answer comes, but not whole or not right.
    Damage(Damage),
}

/// What goes wrong with an answer. Watches are counted in lines; any other answer is one line.
#[derive(Clone, Debug)]
pub enum Damage {
    /// The connection goes away after so many lines.
    Cut {
        /// Lines that get through.
        after: usize,
    },
    /// The answer ends properly after so many lines.
    End {
        /// Lines that get through.
        after: usize,
    },
    /// A black hole: the connection stays, and nothing comes any more.
    Stall {
        /// Lines that get through.
        after: usize,
    },
    /// A line of something else.
    Garbage {
        /// Lines before it.
        after: usize,
        /// The line.
        text: String,
    },
    /// Half a line, and the connection goes away.
    Half {
        /// Lines that get through whole.
        after: usize,
    },
    /// A few bytes at a time.
    Slow {
        /// So many.
        bytes: usize,
        /// The wait after them.
        pause: Duration,
    },
    /// Every line comes twice.
    Twice,
    /// Two lines change places.
    Swap {
        /// Lines before them.
        after: usize,
    },
}

impl Fault {
    /// This answer to the next such request.
    pub fn instead(
        verb: &'static str,
        resource: &'static str,
        reply: impl Fn() -> Reply + Send + 'static,
    ) -> Self {
        Fault {
            verb,
            resource,
            times: 1,
            what: What::Instead(Box::new(reply)),
        }
    }

    /// This damage to the answer to the next such request.
    pub fn damage(verb: &'static str, resource: &'static str, damage: Damage) -> Self {
        Fault {
            verb,
            resource,
            times: 1,
            what: What::Damage(damage),
        }
    }

    /// The next so many requests.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }
}

/// The faults that are still to come.
#[derive(Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault that meets this request, if one does: an answer, or damage to it.
    pub(crate) fn take(&mut self, verb: &str, asked: &Asked) -> Option<Result<Reply, Damage>> {
        let words = asked.path().split('/').collect::<Vec<_>>();
        let fault = self
            .0
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.verb == verb && words.contains(&fault.resource))?;
        fault.times -= 1;
        Some(match &fault.what {
            What::Instead(reply) => Ok(reply()),
            What::Damage(damage) => Err(damage.clone()),
        })
    }
}

impl Damage {
    /// Does the damage.
    pub(crate) fn to(self, reply: Reply) -> Reply {
        let Reply::Answer(Answer {
            status,
            headers,
            body,
        }) = reply
        else {
            return reply;
        };
        let parts = match body {
            Body::Whole(text) => stream::iter([Part::Line(text.trim_end().to_owned()), Part::End]).boxed(),
            Body::Parts(parts) => parts,
        };
        Reply::Answer(Answer {
            status,
            headers,
            body: Body::Parts(damaged(self, parts)),
        })
    }
}

fn damaged(damage: Damage, parts: BoxStream<'static, Part>) -> BoxStream<'static, Part> {
    let then = |after: usize, last: Part, parts: BoxStream<'static, Part>| {
        parts.take(after).chain(stream::iter([last])).boxed()
    };
    match damage {
        Damage::Cut { after } => then(after, Part::Cut, parts),
        Damage::End { after } => then(after, Part::End, parts),
        Damage::Stall { after } => then(after, Part::Hang, parts),
        Damage::Garbage { after, text } => each(parts, move |index, part| {
            let garbage = Part::Line(text.clone());
            match index {
                0 if after == 0 => vec![garbage, part],
                index if index + 1 == after => vec![part, garbage],
                _ => vec![part],
            }
        }),
        Damage::Half { after } => each(parts, move |index, part| match part {
            Part::Line(line) if index == after => {
                let half = (0..=line.len() / 2)
                    .rev()
                    .find(|at| line.is_char_boundary(*at))
                    .unwrap_or(0);
                vec![Part::Text(line[..half].to_owned()), Part::Cut]
            }
            part => vec![part],
        }),
        Damage::Slow { bytes, pause } => each(parts, move |_, part| match part {
            Part::Line(line) => slowly(&line, bytes, pause),
            part => vec![part],
        }),
        Damage::Twice => each(parts, |_, part| match part {
            Part::Line(line) => vec![Part::Line(line.clone()), Part::Line(line)],
            part => vec![part],
        }),
        Damage::Swap { after } => {
            let mut held = None;
            each(parts, move |index, part| {
                if index == after {
                    held = Some(part);
                    return Vec::new();
                }
                let mut now = vec![part];
                now.extend(held.take());
                now
            })
        }
    }
}

fn each(
    parts: BoxStream<'static, Part>,
    mut damage: impl FnMut(usize, Part) -> Vec<Part> + Send + 'static,
) -> BoxStream<'static, Part> {
    parts
        .enumerate()
        .flat_map(move |(index, part)| stream::iter(damage(index, part)))
        .boxed()
}

fn slowly(line: &str, bytes: usize, pause: Duration) -> Vec<Part> {
    let line: Vec<char> = line.chars().chain(['\n']).collect();
    line.chunks(bytes.max(1))
        .flat_map(|few| [Part::Text(few.iter().collect()), Part::Wait(pause)])
        .collect()
}
