//! How large the tables of legacy are. It is the only thing there that tells of an edit without reading everything.

use crate::OBSERVED_TABLES;
use iptables::ast::TableName;
use model::Family;
use rustix::net::{AddressFamily, SocketType, socket};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use xtinfo::Tables;

pub use xtinfo::TableSize;

/// The sizes of a family's tables that this kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSizes(BTreeMap<TableName, TableSize>);

/// Why the sizes cannot be told.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask for the size of {family} table {table}; CAP_NET_ADMIN is needed")]
pub struct SizeError {
    family: Family,
    table: TableName,
    #[source]
    source: io::Error,
}

/// Asks for the sizes of one family's tables in the network namespace that it was made in.
#[derive(Debug)]
pub struct SizeReader {
    family: Family,
    socket: OwnedFd,
}

impl SizeReader {
    /// Opens a datagram socket, which is never bound and carries nothing.
    ///
    /// # Errors
    /// When the kernel does not know the family.
    pub fn new(family: Family) -> io::Result<SizeReader> {
        let domain = match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        let socket = socket(domain, SocketType::DGRAM, None)?;
        Ok(SizeReader { family, socket })
    }

    /// The sizes now, of the tables in which we have rules.
    ///
    /// A table that nobody has used yet is made by asking, so this is for after the rules were read or written.
    ///
    /// # Errors
    /// When the kernel would not say.
    pub fn read(&self) -> Result<TableSizes, SizeError> {
        self.read_of(&OBSERVED_TABLES)
    }

    /// The sizes now, of these tables; those that nobody has used yet are made by asking.
    ///
    /// # Errors
    /// When the kernel would not say.
    pub fn read_of(&self, wanted: &[TableName]) -> Result<TableSizes, SizeError> {
        let tables = match self.family {
            Family::V4 => Tables::Ipv4,
            Family::V6 => Tables::Ipv6,
        };
        let mut sizes = BTreeMap::new();
        for table in wanted.iter().copied() {
            match xtinfo::table_size(&self.socket, tables, table.as_str()) {
                Ok(size) => drop(sizes.insert(table, size)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(SizeError {
                        family: self.family,
                        table,
                        source,
                    });
                }
            }
        }
        Ok(TableSizes(sizes))
    }
}

impl TableSizes {
    /// How these differ from what they were: `nat 40 entries (-1)`.
    pub fn since(&self, before: &TableSizes) -> String {
        let changed = self.0.iter().filter_map(|(table, now)| {
            let then = before.0.get(table)?;
            (then != now).then(|| {
                let more = i64::from(now.entries) - i64::from(then.entries);
                format!("{table} {} entries ({more:+})", now.entries)
            })
        });
        let changed: Vec<String> = changed.collect();
        changed.join(", ")
    }
}

/// `nat 40 entries, 6080 bytes`, and so on.
impl fmt::Display for TableSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self
            .0
            .iter()
            .map(|(table, size)| format!("{table} {} entries, {} bytes", size.entries, size.bytes));
        f.write_str(&each.collect::<Vec<_>>().join("; "))
    }
}
