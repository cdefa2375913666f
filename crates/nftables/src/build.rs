//! From what traffic should do to sets, chains and elements.
//!
//! Nothing is decided here again: routes, lists and admissions come decided in [`model::desired`].

mod frame;
mod picks;
mod service;

pub use frame::{Choice, RULE_COMMENTS, Shape, Shapes, frame, node_elements};
pub use service::{ServiceSlots, comment_of, frontends, place, placed, service, shapes};

use crate::ast::Elements;
use model::Desired;

/// Throws of the die before a packet goes to slot 0. More than half of the slots are taken, so that this happens with a
/// chance of less than 2^-16.
const THROWS: usize = 16;

/// The elements of a table that is made anew, and the shapes that its frame needs for them.
pub fn parts(desired: &Desired) -> (Shapes, Elements) {
    let (mut all, mut elements) = (Shapes::new(), node_elements(&desired.node));
    for of_one in desired.services.values() {
        let slots = place(&ServiceSlots::new(), of_one);
        all.extend(shapes(of_one, &slots));
        elements.extend(service(of_one, &slots));
    }
    (all, elements)
}
