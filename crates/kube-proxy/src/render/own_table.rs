//! nftables mode: the table as one file for `nft -f`, and the steps of a first load as one such file each.

use crate::input::World;
use engine::rehearsal::{Rehearsed, Write as Written};
use model::Family;
use nftables::ast::{Elements, Frame};
use nftables::build;
use nftables::render;
use std::io::Write;

/// The whole table of a family, as a file.
pub(super) fn file(world: &World, family: Family) -> String {
    let (frame, elements) = table(world, family);
    render::file(&frame, &elements)
}

/// The whole table of a family.
pub fn table(world: &World, family: Family) -> (Frame, Elements) {
    let desired = world.desired.get(family);
    let (shapes, elements) = build::parts(desired);
    let frame = build::frame(&desired.node, &shapes, &world.service_cidrs());
    (frame, elements)
}

/// A step under a line with its number and the services it settles.
pub(super) fn print(
    step: &Rehearsed,
    number: usize,
    family: Family,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let Written::OwnTable(write) = &step.write else {
        return Ok(());
    };
    let services: Vec<String> = step.services.iter().map(ToString::to_string).collect();
    let services = match services.join(", ") {
        none if none.is_empty() => "the table".to_owned(),
        some => some,
    };
    writeln!(out, "# step {number}: {services}")?;
    render::step(family, write)
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
}
