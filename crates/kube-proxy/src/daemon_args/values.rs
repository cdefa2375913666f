//! The value of every flag, given or not, as the log and `/flagz` show it.

use super::{Flags, OWN};
use config::KubeProxyConfiguration;
use config::flags::{FLAGS, FlagKind};
use proxy::MOST_SERVICE_METRICS;
use std::num::NonZeroUsize;

impl Flags {
    /// By name. `config` is what the flags made.
    pub(super) fn values(&self, config: &KubeProxyConfiguration) -> Vec<(String, String)> {
        let of_table = FLAGS.iter().map(|flag| flag.name);
        let mut values: Vec<(String, String)> = OWN
            .iter()
            .map(|(name, ..)| *name)
            .chain(of_table)
            .map(|name| {
                let value = config::flag_value(name, config);
                (name.to_owned(), value.unwrap_or_else(|| self.own_value(name)))
            })
            .collect();
        values.sort();
        values
    }

    /// Of a flag that fills no field.
    fn own_value(&self, name: &str) -> String {
        let is_switch = super::kind(name) == Some(FlagKind::Bool);
        match (self.given.get(name), name) {
            (Some(given), _) if is_switch => match config::flags::parse_bool(given) {
                Ok(on) => on.to_string(),
                Err(_) => given.clone(),
            },
            (Some(given), _) => given.clone(),
            (None, "healthz-port") => "10256".to_owned(),
            (None, "metrics-port") => "10249".to_owned(),
            (None, super::SERVICE_METRICS) => "0".to_owned(),
            (None, "boot-id-file") => "/proc/sys/kernel/random/boot_id".to_owned(),
            (None, "machine-id-file") => "/etc/machine-id,/var/lib/dbus/machine-id".to_owned(),
            (None, _) if is_switch => "false".to_owned(),
            (None, _) => String::new(),
        }
    }
}

/// How many service ports are counted as metrics; `None` for none.
pub(super) fn service_metrics(text: &str) -> Result<Option<NonZeroUsize>, String> {
    match text.parse::<usize>() {
        Ok(number) if number <= MOST_SERVICE_METRICS => Ok(NonZeroUsize::new(number)),
        _ => Err(format!("give a number from 0 (off) to {MOST_SERVICE_METRICS}")),
    }
}
