//! One macro for the many small number spaces of the kernel's interfaces.

/// Declares a closed enum over kernel numbers, with `code`, `from_code` and `ALL`.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident: $repr:ty { $($(#[$doc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the kernel's header.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The kernel's number.
            pub const fn code(self) -> $repr {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The value for a kernel number, if this crate knows it.
            pub const fn from_code(code: $repr) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub(crate) use codes;
