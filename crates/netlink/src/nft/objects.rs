//! Tables, chains, rules and generations as the kernel reports them.

use super::expr::{Expr, read_list};
use super::uapi;
use super::verdict::Policy;
use crate::attr::{Attrs, Fields};
use crate::codes::codes;
use crate::error::DecodeError;
use crate::nfnl::Family;

/// `NFT_TABLE_F_DORMANT`: the table's chains are not hooked in.
pub const TABLE_DORMANT: u32 = 1;
/// `NFT_TABLE_F_OWNER`: only the socket that made the table may change it, and it vanishes with that socket.
pub const TABLE_OWNER: u32 = 2;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    /// Family.
    pub family: Family,
    /// Name.
    pub name: &'a str,
    /// Number that stays the same for the table's life.
    pub handle: u64,
    /// [`TABLE_DORMANT`] and [`TABLE_OWNER`].
    pub flags: u32,
    /// Number of chains, sets and objects in it.
    pub use_count: u32,
    /// Port of the owning socket, if it has an owner.
    pub owner: Option<u32>,
    /// What the maker stored with it.
    pub userdata: &'a [u8],
}

impl<'a> Table<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::table as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        Ok(Self {
            family,
            name: fields.need(at::NAME, fields.text(at::NAME)?)?,
            handle: fields.u64(at::HANDLE)?.unwrap_or_default(),
            flags: fields.u32(at::FLAGS)?.unwrap_or_default(),
            use_count: fields.u32(at::USE)?.unwrap_or_default(),
            owner: fields.u32(at::OWNER)?,
            userdata: fields.bytes(at::USERDATA).unwrap_or_default(),
        })
    }
}

codes! {
    /// Where in a packet's way a base chain of the IP families is called.
    pub enum Hook: u32 {
        /// Before routing, packets from outside.
        Prerouting = 0,
        /// Packets for this host.
        Input = 1,
        /// Packets passing through.
        Forward = 2,
        /// Packets from this host.
        Output = 3,
        /// Packets leaving.
        Postrouting = 4,
        /// Packets entering a device (inet and netdev).
        Ingress = 5,
    }
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base<'a> {
    /// Hook number; [`Hook::from_code`] for the IP families.
    pub hook: u32,
    /// Order among the base chains of a hook, lowest first.
    pub priority: i32,
    /// `filter`, `nat` or `route`.
    pub kind: &'a str,
    /// What happens at the end.
    pub policy: Policy,
    /// Packets and bytes that met the policy, if counted.
    pub counters: Option<Counters>,
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Counters {
    pub(super) fn read(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        const BYTES: u16 = 1;
        const PACKETS: u16 = 2;
        let fields = Fields::<4>::read(attrs)?;
        Ok(Self {
            packets: fields.u64(PACKETS)?.unwrap_or_default(),
            bytes: fields.u64(BYTES)?.unwrap_or_default(),
        })
    }
}

/// A chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<'a> {
    /// Family of its table.
    pub family: Family,
    /// Its table.
    pub table: &'a str,
    /// Name.
    pub name: &'a str,
    /// Number that stays the same for the chain's life.
    pub handle: u64,
    /// Number of its rules plus number of references to it.
    pub use_count: u32,
    /// Its hook, if it is a base chain.
    pub base: Option<Base<'a>>,
    /// `NFT_CHAIN_*` flags.
    pub flags: u32,
    /// What the maker stored with it.
    pub userdata: &'a [u8],
}

impl<'a> Chain<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::chain as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        Ok(Self {
            family,
            table: fields.need(at::TABLE, fields.text(at::TABLE)?)?,
            name: fields.need(at::NAME, fields.text(at::NAME)?)?,
            handle: fields.u64(at::HANDLE)?.unwrap_or_default(),
            use_count: fields.u32(at::USE)?.unwrap_or_default(),
            base: Self::read_base(&fields)?,
            flags: fields.u32(at::FLAGS)?.unwrap_or_default(),
            userdata: fields.bytes(at::USERDATA).unwrap_or_default(),
        })
    }

    /// Notifications about deleted base chains of a device may carry a hook without its numbers; such a chain is
    /// reported without a base.
    fn read_base(fields: &Fields<'a, { uapi::chain::COUNT }>) -> Result<Option<Base<'a>>, DecodeError> {
        use uapi::{chain as at, hook};
        let Some(nest) = fields.nest(at::HOOK, "chain hook") else {
            return Ok(None);
        };
        let inside = Fields::<{ hook::COUNT }>::read(nest)?;
        let (Some(number), Some(priority)) = (inside.u32(hook::NUMBER)?, inside.i32(hook::PRIORITY)?) else {
            return Ok(None);
        };
        let policy = fields.u32(at::POLICY)?.unwrap_or_else(|| Policy::Accept.code());
        let counters = fields
            .nest(at::COUNTERS, "chain counters")
            .map(Counters::read)
            .transpose()?;
        Ok(Some(Base {
            hook: number,
            priority,
            kind: fields.text(at::TYPE)?.unwrap_or_default(),
            policy: Policy::from_code(policy).ok_or_else(|| fields.unknown(at::POLICY, policy))?,
            counters,
        }))
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Family of its table.
    pub family: Family,
    /// Its table.
    pub table: &'a str,
    /// Its chain.
    pub chain: &'a str,
    /// Number that stays the same for the rule's life and is unique in its table.
    pub handle: u64,
    /// Handle of the rule before it in its chain, in dumps and notifications.
    pub position: Option<u64>,
    /// What it does, in order.
    pub expressions: Vec<Expr<'a>>,
    /// What the maker stored with it (nft's comments live here).
    pub userdata: &'a [u8],
}

impl<'a> Rule<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::rule as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let list = fields.nest(at::EXPRESSIONS, "rule expressions");
        Ok(Self {
            family,
            table: fields.need(at::TABLE, fields.text(at::TABLE)?)?,
            chain: fields.need(at::CHAIN, fields.text(at::CHAIN)?)?,
            handle: fields.need(at::HANDLE, fields.u64(at::HANDLE)?)?,
            position: fields.u64(at::POSITION)?,
            expressions: list.map(read_list).transpose()?.unwrap_or_default(),
            userdata: fields.bytes(at::USERDATA).unwrap_or_default(),
        })
    }
}

/// The ruleset's generation: it moves with every commit of anybody, in all families together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation<'a> {
    /// The number to put into a batch ([`crate::nfnl::Batch::new`]).
    pub id: u32,
    /// Process that committed or, in the answer to a question, asks; a pid of the *initial* pid namespace.
    pub process: Option<u32>,
    /// That process's short name.
    pub process_name: Option<&'a str>,
}

impl<'a> Generation<'a> {
    pub(super) fn read(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::generation as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        Ok(Self {
            id: fields.need(at::ID, fields.u32(at::ID)?)?,
            process: fields.u32(at::PROC_PID)?,
            // A process may give itself any bytes as a name; a strange one is not worth an error.
            process_name: fields.text(at::PROC_NAME).ok().flatten(),
        })
    }
}
