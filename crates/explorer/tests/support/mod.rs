//! What the tests of answers share: an explored world, read once.

use explain::{From, Parts, Question, To, assemble};
use explorer::{About, Explored, Liveness};

/// What the explorer shows of these parts.
pub fn explored(parts: Parts) -> Explored {
    let question = Question {
        from: From::Pod,
        to: To::NodePort(1),
        protocol: None,
        in_interface: None,
    };
    let world = assemble(parts, &question).expect("a world");
    let about = About {
        version: "1",
        liveness: Liveness::Once,
        read_ms: 7,
    };
    Explored::new(world, about)
}
