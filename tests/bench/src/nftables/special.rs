//! Services that are not like the others.

use crate::objects::{service, slice};
use crate::server::Server;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Endpoints in one slice at most, as the controller has it.
const SLICE: usize = 100;
/// Sizes that no service had before, one above each power of two.
pub const SIZES: [usize; 6] = [17, 33, 65, 129, 257, 513];

/// A service with any number of endpoints and addresses.
pub struct Special {
    number: u8,
    endpoints: Vec<Ipv4Addr>,
    external: usize,
    affinity: Option<usize>,
    next: u32,
    version: u64,
}

impl Special {
    /// Number `number`, below 250, with so many endpoints and external addresses.
    pub fn new(number: u8, endpoints: usize, external: usize) -> Special {
        let mut special = Special {
            number,
            endpoints: Vec::new(),
            external,
            affinity: None,
            next: 0,
            version: 20,
        };
        special.endpoints = (0..endpoints).map(|_| special.fresh()).collect();
        special
    }

    /// Its cluster IP.
    pub fn ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 100, 0, self.number)
    }

    /// Its objects: slices, then the Service.
    pub fn all(&self) -> Vec<(&'static str, Value)> {
        let slices = (0..self.endpoints.len().div_ceil(SLICE)).map(|at| ("ADDED", self.slice(at)));
        slices.chain([("ADDED", self.service())]).collect()
    }

    /// Another endpoint in the place of one; the slice, and the new address.
    pub fn replace(&mut self) -> (Value, Ipv4Addr) {
        self.version += 1;
        let new = self.fresh();
        let at = usize::try_from(self.version).expect("small") * 37 % self.endpoints.len();
        self.endpoints[at] = new;
        (self.slice(at / SLICE), new)
    }

    /// More or fewer endpoints, at most as many as fit into one slice; the slice.
    pub fn resize(&mut self, count: usize) -> Value {
        self.version += 1;
        self.endpoints.truncate(count);
        while self.endpoints.len() < count {
            let new = self.fresh();
            self.endpoints.push(new);
        }
        self.slice(0)
    }

    fn fresh(&mut self) -> Ipv4Addr {
        self.next += 1;
        // 65,536 addresses of its own, beyond those of the other services.
        let base = u32::from(Ipv4Addr::new(11, 130, 0, 0)) + u32::from(self.number % 100) * 65_536;
        Ipv4Addr::from(base + self.next % 65_536)
    }

    fn name(&self) -> String {
        format!("special-{}", self.number)
    }

    fn slice(&self, at: usize) -> Value {
        let part = self.endpoints.chunks(SLICE).nth(at).unwrap_or_default();
        slice(&self.name(), &format!("part-{at}"), part, self.version)
    }

    fn service(&self) -> Value {
        let mut object = service(&self.name(), self.ip(), self.version);
        let external: Vec<String> = (0..self.external)
            .map(|at| format!("10.101.{}.{at}", self.number))
            .collect();
        object["spec"]["externalIPs"] = json!(external);
        if let Some(seconds) = self.affinity {
            object["spec"]["sessionAffinity"] = json!("ClientIP");
            object["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        object
    }
}

const FIRST_SHAPE: u8 = 100;
const FIRST_SIZE: u8 = 10;

fn numbered(first: u8, at: usize) -> u8 {
    first + u8::try_from(at).expect("few of these")
}

/// The cluster IP of the service that is alone with its shape.
pub fn shape_ip(at: usize) -> Ipv4Addr {
    Special::new(numbered(FIRST_SHAPE, at), 0, 0).ip()
}

/// A service whose clients stay for a time that no other service has.
pub fn shape_objects(at: usize) -> Special {
    Special {
        affinity: Some(600 + at),
        ..Special::new(numbered(FIRST_SHAPE, at), 1, 0)
    }
}

/// The first service of its size.
pub fn size_objects(at: usize) -> Special {
    Special::new(numbered(FIRST_SIZE, at), SIZES[at], 0)
}

/// Sends the objects of a shape.
pub fn shape(server: &Server, at: usize) {
    for (kind, object) in shape_objects(at).all() {
        server.push(kind, &object);
    }
}
