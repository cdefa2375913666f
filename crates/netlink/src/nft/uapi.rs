//! Numbers from `linux/netfilter/nf_tables.h` and `nf_tables_compat.h`.
#![allow(missing_docs, reason = "the names are the kernel's")]

pub(super) mod msg {
    pub(crate) const NEWTABLE: u8 = 0;
    pub(crate) const GETTABLE: u8 = 1;
    pub(crate) const DELTABLE: u8 = 2;
    pub(crate) const NEWCHAIN: u8 = 3;
    pub(crate) const GETCHAIN: u8 = 4;
    pub(crate) const DELCHAIN: u8 = 5;
    pub(crate) const NEWRULE: u8 = 6;
    pub(crate) const GETRULE: u8 = 7;
    pub(crate) const DELRULE: u8 = 8;
    pub(crate) const NEWSET: u8 = 9;
    pub(crate) const GETSET: u8 = 10;
    pub(crate) const DELSET: u8 = 11;
    pub(crate) const NEWSETELEM: u8 = 12;
    pub(crate) const GETSETELEM: u8 = 13;
    pub(crate) const DELSETELEM: u8 = 14;
    pub(crate) const NEWGEN: u8 = 15;
    pub(crate) const GETGEN: u8 = 16;
    pub(crate) const TRACE: u8 = 17;
}

pub(super) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const USE: u16 = 3;
    pub(crate) const HANDLE: u16 = 4;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const OWNER: u16 = 7;
    pub(crate) const COUNT: usize = 8;
}

pub(super) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const HANDLE: u16 = 2;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const USE: u16 = 6;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const COUNTERS: u16 = 8;
    pub(crate) const FLAGS: u16 = 10;
    pub(crate) const USERDATA: u16 = 12;
    pub(crate) const COUNT: usize = 13;
}

pub(super) mod hook {
    pub(crate) const NUMBER: u16 = 1;
    pub(crate) const PRIORITY: u16 = 2;
    pub(crate) const COUNT: usize = 5;
}

pub(super) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const HANDLE: u16 = 3;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const POSITION: u16 = 6;
    pub(crate) const USERDATA: u16 = 7;
    pub(crate) const COUNT: usize = 12;
}

pub(super) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LENGTH: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LENGTH: u16 = 7;
    pub(crate) const DESCRIPTION: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const TIMEOUT: u16 = 11;
    pub(crate) const USERDATA: u16 = 13;
    /// `NFTA_SET_COUNT`.
    pub(crate) const HELD: u16 = 20;
    pub(crate) const COUNT: usize = 21;

    pub(crate) mod description {
        pub(crate) const SIZE: u16 = 1;
        pub(crate) const CONCAT: u16 = 2;
        pub(crate) const COUNT: usize = 3;
        pub(crate) const FIELD_LENGTH: u16 = 1;
    }
}

pub(super) mod element {
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const EXPIRATION: u16 = 5;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const EXPRESSION: u16 = 7;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const COUNT: usize = 12;
}

pub(super) mod elements {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const LIST: u16 = 3;
    pub(crate) const SET_ID: u16 = 4;
    pub(crate) const COUNT: usize = 5;
}

/// `NFTA_LIST_ELEM`.
pub(super) const LIST_ELEM: u16 = 1;

pub(super) mod expr {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const COUNT: usize = 3;
}

pub(super) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const COUNT: usize = 3;
}

pub(super) mod verdict {
    pub(crate) const CODE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const COUNT: usize = 3;
}

pub(super) mod generation {
    pub(crate) const ID: u16 = 1;
    pub(crate) const PROC_PID: u16 = 2;
    pub(crate) const PROC_NAME: u16 = 3;
    pub(crate) const COUNT: usize = 4;
}

pub(super) mod trace {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const RULE_HANDLE: u16 = 3;
    pub(crate) const TYPE: u16 = 4;
    pub(crate) const VERDICT: u16 = 5;
    pub(crate) const ID: u16 = 6;
    pub(crate) const LL_HEADER: u16 = 7;
    pub(crate) const NETWORK_HEADER: u16 = 8;
    pub(crate) const TRANSPORT_HEADER: u16 = 9;
    pub(crate) const IIF: u16 = 10;
    pub(crate) const OIF: u16 = 12;
    pub(crate) const MARK: u16 = 14;
    pub(crate) const NFPROTO: u16 = 15;
    pub(crate) const POLICY: u16 = 16;
    pub(crate) const CT_ID: u16 = 18;
    pub(crate) const CT_DIRECTION: u16 = 19;
    pub(crate) const CT_STATUS: u16 = 20;
    pub(crate) const CT_STATE: u16 = 21;
    pub(crate) const COUNT: usize = 22;
}
