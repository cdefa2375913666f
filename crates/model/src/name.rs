//! Names of services and of their ports.

use crate::Protocol;
use std::fmt;
use std::sync::Arc;

/// A namespace and a name in it. Ordered by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// `namespace/name`.
impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

macro_rules! namespaced {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// Copies are the same text, and take one word: a cluster's names are in a dozen places.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Arc<NamespacedName>);

        impl $name {
            /// A name out of its two parts.
            pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
                $name(Arc::new(NamespacedName {
                    namespace: namespace.into(),
                    name: name.into(),
                }))
            }
        }

        impl std::ops::Deref for $name {
            type Target = NamespacedName;

            fn deref(&self) -> &NamespacedName {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("namespace", &self.namespace)
                    .field("name", &self.name)
                    .finish()
            }
        }

        /// `namespace/name`.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", *self.0)
            }
        }
    };
}

namespaced! {
    /// A Service's namespace and name. Ordered by namespace, then name.
    ServiceName
}

namespaced! {
    /// An `EndpointSlice`'s namespace and name.
    SliceName
}

/// The identity of one port of a Service: namespace, name, port name and protocol.
///
/// The protocol is part of the identity and not of the printed form, as upstream has it (`ServicePortName`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortName {
    /// The Service.
    pub service: ServiceName,
    /// The port's name; empty for the only port of a Service.
    pub port: Arc<str>,
    /// The port's protocol.
    pub protocol: Protocol,
}

/// `namespace/name`, or `namespace/name:port` when the port has a name.
impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if self.port.is_empty() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}
