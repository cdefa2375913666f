//! What nobody wants: chains and rules of ours that no service has claimed when all were settled.

use super::batch::Batch;
use super::have::Have;

/// A batch that takes away up to `limit` leftovers; empty when there are none.
///
/// Rules in dispatch chains that name no service go with the first one. Chains go callers first.
pub fn sweep(have: &Have, limit: usize) -> Batch {
    let mut batch = Batch::new();
    let leftovers = &have.leftovers;
    batch.delete(&leftovers.strays);
    batch.swept.strays.clone_from(&leftovers.strays);
    batch.swept.odd_chains = leftovers.odd_chains.iter().take(limit).cloned().collect();
    let room = limit - batch.swept.odd_chains.len();
    batch.swept.chains = leftovers.chains.keys().take(room).copied().collect();
    let chains = batch.swept.chains.iter().map(|id| id.name());
    let names: Vec<_> = batch.swept.odd_chains.iter().cloned().chain(chains).collect();
    batch.retire(names);
    batch
}
