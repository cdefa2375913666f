//! How full the sets are that remember clients.

use super::table::NftTable;
use crate::nft::family;
use crate::socket::SocketError;
use netlink::nft::{Message, SetRequest};
use nftables::names::{self, Role, TABLE};

/// The sets of clients of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientSets {
    /// Clients that are remembered, in all sets.
    pub clients: u64,
    /// How full the fullest set is: 1 takes no more clients.
    pub fullest: f64,
}

impl NftTable {
    /// How full the sets of clients are: one dump of sets without their elements. `None` when the kernel does not count
    /// (before 6.16).
    ///
    /// # Errors
    /// When the kernel does not answer, or its answer makes no sense.
    pub fn client_sets(&mut self) -> Result<Option<ClientSets>, SocketError> {
        let request = SetRequest::Sets {
            family: family(self.family),
            table: TABLE,
        };
        let found = self.socket.dump(
            |sequence, bytes| request.encode(sequence, bytes),
            |message| match Message::read(message)? {
                Message::NewSet(set) if is_of_clients(set.name) => Ok(Some((set.held, set.size))),
                _ => Ok(None),
            },
        )?;
        let counted = found.into_iter().map(|(held, size)| Some((held?, size?)));
        let counted: Option<Vec<(u32, u32)>> = counted.collect();
        Ok(counted.map(|sets| ClientSets {
            clients: sets.iter().map(|(held, _)| u64::from(*held)).sum(),
            fullest: sets.iter().copied().map(share).fold(0.0, f64::max),
        }))
    }
}

fn is_of_clients(name: &str) -> bool {
    names::form_of(name).is_some_and(|form| matches!(form.role, Role::Clients(_)))
}

fn share((held, size): (u32, u32)) -> f64 {
    f64::from(held) / f64::from(size)
}
