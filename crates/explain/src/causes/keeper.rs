//! Who keeps a slice: what a controller writes, it writes again, so that changing it by hand is no use.

use super::endpoints::of_slice;
use crate::finding::Advice;
use crate::objects::CONTROLLER;
use crate::world::World;
use model::ServiceName;
use model::object::Slice;

/// Who copies Endpoints objects into slices.
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";

/// Who keeps a slice, by its label `endpointslice.kubernetes.io/managed-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// The controller that follows the Service's selector.
    Controller,
    /// The controller that follows the Service's Endpoints object.
    Mirror,
    /// Somebody else: who wrote it may change it.
    Somebody,
    /// Its labels are not known: a running proxy does not keep them.
    NotKnown,
}

pub(super) fn keeper(world: &World, slice: &Slice) -> Keeper {
    match world.objects.slices.get(&slice.name) {
        None => Keeper::NotKnown,
        Some(details) => match details.managed_by.as_deref() {
            Some(CONTROLLER) => Keeper::Controller,
            Some(MIRROR) => Keeper::Mirror,
            _ => Keeper::Somebody,
        },
    }
}

/// What to do about a slice: change this field of it where somebody wrote it by hand, and else what its controller follows.
pub(super) fn change(
    world: &World,
    slice: &Slice,
    field: &str,
    by_hand: &str,
    followed: Advice,
) -> Vec<Advice> {
    let service = slice.service.as_ref().map_or("", |name| &*name.name);
    let of_hand = |action: String| Advice::change(of_slice(slice), field, action);
    match keeper(world, slice) {
        Keeper::Controller => vec![followed],
        Keeper::Somebody => vec![of_hand(by_hand.to_owned())],
        Keeper::Mirror => vec![Advice::act(format!(
            "change the Endpoints object, which this slice is a copy of: kubectl edit endpoints -n {} {service}",
            slice.name.namespace
        ))],
        Keeper::NotKnown => vec![
            followed,
            of_hand(format!(
                "only if no controller keeps it (label endpointslice.kubernetes.io/managed-by), else it is written anew: {by_hand}"
            )),
        ],
    }
}

/// The controller writes what the Service says: that it has not done so is its own trouble.
pub(super) fn see_controller() -> Advice {
    Advice::act(
        "the slice's controller copies the Service's ports and follows its pods: look at the log of kube-controller-manager \
         (endpointslice-controller) for why it has not",
    )
}

/// The pods that a Service selects, where neither they nor its selector are known.
pub(super) fn see_pods(service: &ServiceName) -> Advice {
    let (namespace, name) = (&service.namespace, &service.name);
    Advice::act(format!(
        "compare the Service's selector with the labels of pods, and see whether they run: kubectl get service -n {namespace} {name} -o \
         wide; kubectl get pods -n {namespace} --show-labels"
    ))
}
